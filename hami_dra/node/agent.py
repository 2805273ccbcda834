"""One agent: put the parts together, start them in order, and stop them in order.

Start: memory, cards, files, plugin socket, slices, and the registration socket last, because the
kubelet begins to call the moment it sees that. Stop: the other way round. The slice stays, and
files and memory do as long as there is a claim, so that a restart hurts nobody.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from hami_dra.kube.claims import find_claim
from hami_dra.kube.node_events import NodeEvents
from hami_dra.kube.session import Session
from hami_dra.migration import Json
from hami_dra.node import feed, leave, processes, sockets, turns
from hami_dra.node.allocation import PrepareError
from hami_dra.node.backend import Backend
from hami_dra.node.checkpoint import NewerFormatError
from hami_dra.node.claims import Claims
from hami_dra.node.files import Files
from hami_dra.node.health import HealthBoard
from hami_dra.node.host import Directories
from hami_dra.node.library import Library
from hami_dra.node.messages import ClaimReference
from hami_dra.node.metrics import Metrics
from hami_dra.node.node_state import NodeState
from hami_dra.node.plugin import Machine, Plugin, Refusing
from hami_dra.node.probes import Probes
from hami_dra.node.publisher import Publisher
from hami_dra.node.reconciler import Reconciler
from hami_dra.node.record import Record
from hami_dra.node.recovery import BOOT_ID, Recovery, begin
from hami_dra.node.server import KubeletServer
from hami_dra.node.settings import Settings
from hami_dra.node.strictness import Strictness
from hami_dra.node.troubles import HARMLESS, Trouble, Troubles
from hami_dra.node.upkeep import kept_up

COMPONENT: Final = "hami-dra-node"

_LOOK_S: Final = 30.0
_STUCK_S: Final = 5.0

_log = logging.getLogger(__name__)


class Agent:
    """The agent of one node.

    Args:
        settings: how it runs.
        backend: where cards come from.
        session: the API server.
    """

    def __init__(self, settings: Settings, backend: Backend, session: Session) -> None:
        self._settings = settings
        self._session = session
        self._backend = backend
        self._metrics = Metrics()
        events = NodeEvents(session, COMPONENT, settings.name)
        self._troubles = Troubles(events, self._metrics)
        self._library = (
            Library(settings.library, settings.plugin_directory / "lib", Files())
            if settings.library
            else None
        )
        self._state = NodeState(
            backend,
            library=self._library,
            name=settings.name,
            driver=settings.driver,
            split_count=settings.split_count,
            strictness=Strictness(settings.core_policy, may_disable=settings.allow_disable),
        )
        self._board = HealthBoard(settings.name)
        self._publisher = Publisher(
            session,
            node=settings.name,
            driver=settings.driver,
            wanted=self._state.slice,
            troubles=self._troubles,
            metrics=self._metrics,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until told to stop.

        Raises:
            SecondAgentError: if this node already has an agent.
            SocketPathError: if the directories' paths are too long.
            OSError: if a directory cannot be used.
        """
        chosen = self._prepare_directories()
        with self._alone():
            await asyncio.to_thread(self._state.refresh)
            if self._library:
                await asyncio.to_thread(_install, self._library)
            machine = await self._machine()
            plugin = Plugin(machine, self._find, self._metrics)
            server = KubeletServer(
                chosen,
                driver=self._settings.driver,
                plugin=plugin,
                health=self._board,
                metrics=self._metrics,
            )
            async with self._background(machine), self._probing(plugin, server):
                await server.start()
                _log.info(
                    "waiting for the kubelet", extra={"fields": {"driver": self._settings.driver}}
                )
                await stop.wait()
                _log.info("stopping")
                await server.stop()
                await asyncio.to_thread(plugin.close)
            await asyncio.to_thread(self._leave, machine)

    def _leave(self, machine: Machine) -> None:
        """Leave nothing on a node that nobody needs an agent for; whoever comes begins anew."""
        home = self._settings.plugin_directory
        if not isinstance(machine, Claims) or leave.others(home):
            return
        try:
            if machine.forget():
                leave.remove_empty(home, self._settings.run_directory)
        except OSError as error:
            _log.warning("files were left behind: %s", error)

    def _prepare_directories(self) -> sockets.Sockets:
        settings = self._settings
        for path in (settings.registry, settings.plugin_directory):
            path.mkdir(parents=True, exist_ok=True, mode=0o755)
        self._directories.make()
        chosen = sockets.choose(
            settings.registry, settings.plugin_directory, settings.driver, settings.instance
        )
        for directory, prefix in (
            (settings.registry, settings.driver),
            (settings.plugin_directory, "dra"),
        ):
            for name in sockets.remove_dead(directory, prefix):
                _log.info("socket of a dead agent removed: %s", name)
        return chosen

    @property
    def _directories(self) -> Directories:
        return Directories(
            cdi=self._settings.cdi_directory, claims=self._settings.run_directory / "claims"
        )

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Be the only agent, unless instances are told apart."""
        if self._settings.instance:
            yield
            return
        descriptor = turns.claim_for_life(self._settings.plugin_directory / "agent.lock")
        try:
            yield
        finally:
            os.close(descriptor)

    async def _machine(self) -> Claims | Refusing:
        """Make the claim machine of what is remembered, with all files as they should be."""
        home, boot_id = self._settings.plugin_directory, _boot_id()
        try:
            claims, recovery = await asyncio.to_thread(
                begin, home, self._directories, self._state, boot_id, files=Files()
            )
        except NewerFormatError as error:
            await self._troubles.begin(Trouble.NEWER_CHECKPOINT, str(error))
            return Refusing(str(error))
        if recovery.is_news:
            await asyncio.to_thread(_persist, claims)
        await self._tell(recovery)
        for name in await asyncio.to_thread(claims.remove_orphans):
            _log.warning("file of an unknown claim removed: %s", name)
        for uid, why in (await asyncio.to_thread(claims.restore)).items():
            _log.warning("files of claim %s not restored: %s", uid, why)
        return claims

    async def _tell(self, recovery: Recovery) -> None:
        if recovery.troubles:
            rebuilt = ", ".join(recovery.rebuilt) or "none"
            text = f"{'; '.join(recovery.troubles)}; claims rebuilt from their files: {rebuilt}"
            await self._troubles.begin(Trouble.CHECKPOINT, text)
        _log.info(
            "claims remembered",
            extra={
                "fields": {
                    "claims": len(recovery.content.records),
                    "new_boot": recovery.is_new_boot,
                }
            },
        )

    @contextlib.asynccontextmanager
    async def _background(self, machine: Machine) -> AsyncIterator[None]:
        """Publish, look at the cards and reconcile, as long as the body runs."""
        parts: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("publishing", self._publisher.run),
            ("looking at cards", lambda: self._look_at_cards(machine)),
        ]
        if isinstance(machine, Claims):
            parts.append(("comparing claims", Reconciler(machine, self._find_record).run))
            self._metrics.claims.set_function(lambda: len(machine.records()))
            if self._library and processes.sees_all():
                measure = self._backend.processes if self._backend.is_measurable else None
                feeder, lock = feed.Feeder(measure), self._settings.plugin_directory / "feed.lock"
                parts.append(("measuring", lambda: feed.keep_feeding(feeder, machine.fed, lock)))
        running = [asyncio.create_task(kept_up(name, run)) for name, run in parts]
        try:
            yield
        finally:
            for task in running:
                task.cancel()
            await asyncio.wait(running)

    @contextlib.asynccontextmanager
    async def _probing(self, plugin: Plugin, server: KubeletServer) -> AsyncIterator[None]:
        probes = Probes(
            self._settings.address,
            self._settings.port,
            alive=lambda: {"claims": plugin.stuck(_STUCK_S), "sockets": server.gone},
            ready=lambda: self._unready(server),
            registry=self._metrics.registry,
        )
        probes.start()
        _log.info("probes and metrics on port %d", probes.port)
        try:
            yield
        finally:
            await asyncio.to_thread(probes.stop)

    def _unready(self, server: KubeletServer) -> Mapping[str, str]:
        registered = "" if server.is_registered else "the kubelet has not registered the plugin"
        if server.refusal:
            registered = f"the kubelet refused the plugin: {server.refusal}"
        published = "" if self._publisher.is_published else "the slice is not published"
        troubles = {
            kind.value: text
            for kind, text in self._troubles.current().items()
            if kind not in HARMLESS
        }
        return {"registration": registered, "slice": published, **troubles}

    async def _look_at_cards(self, machine: Machine) -> None:
        """Notice cards that come, go, fail and recover, and libraries that nobody has any more."""
        while True:
            self._board.show(self._state.health())
            await self._tell_of_cards()
            await asyncio.to_thread(self._remove_libraries, machine)
            await asyncio.sleep(_LOOK_S)
            if await asyncio.to_thread(self._state.refresh):
                self._publisher.refresh()

    async def _tell_of_cards(self) -> None:
        failed = [f"{name}: {wrong}" for name, wrong in self._state.health() if wrong]
        self._metrics.unhealthy.set(len(failed))
        for kind, text in (
            (Trouble.CARDS, self._state.problem),
            (Trouble.CARD, "; ".join(failed)),
        ):
            if text:
                await self._troubles.begin(kind, text)
            else:
                self._troubles.end(kind)

    def _remove_libraries(self, machine: Machine) -> None:
        if self._library is None or not isinstance(machine, Claims):
            return
        try:
            removed = machine.with_libraries(self._library.remove_unused)
        except (OSError, PrepareError) as error:
            _log.info("libraries that no claim has are not removed: %s", error)
            return
        for digest in removed or ():
            _log.info("library that no claim has removed: %s", digest)

    async def _find(self, claim: ClaimReference) -> Json | None:
        return await find_claim(self._session, claim.namespace, claim.name, claim.uid)

    async def _find_record(self, record: Record) -> Json | None:
        return await find_claim(self._session, record.namespace, record.name, record.uid)


def _install(library: Library) -> None:
    """Have the library on the node, at the latest when a claim needs it.

    A full disk must not keep an agent away, whom pods need to end and so to make room.

    Raises:
        OSError: if there is no such library.
    """
    try:
        library.install()
    except OSError as error:
        if not library.digest:
            raise
        _log.warning("the native library could not be written yet: %s", error)


def _persist(claims: Claims) -> None:
    """Write down what is remembered, or leave it to the next claim, as on a full disk."""
    try:
        claims.persist()
    except OSError as error:
        _log.warning("what is remembered could not be written down yet: %s", error)


def _boot_id(path: Path = BOOT_ID) -> str:
    return path.read_text().strip()
