"""Apply and remove an installation on a live cluster, one object after the other."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from hami_dra.install.admission import PART_OF
from hami_dra.install.holders import holders
from hami_dra.install.manifests import is_needed_by_pods, title
from hami_dra.install.order import Stages
from hami_dra.install.progress import Standstill, complaints, lacks, works_at_once
from hami_dra.kube.errors import ConflictError, NotFoundError
from hami_dra.kube.ledgers import SELECTOR
from hami_dra.kube.pages import pages
from hami_dra.kube.served import Discovery, UnknownKindError
from hami_dra.kube.session import Session
from hami_dra.migration import Json

MANAGER: Final = "hami-dra-install"
"""Owner of the fields that are applied."""

_SHARED: Final = frozenset({"Namespace", "DeviceClass"})
"""Kinds that may be somebody else's and still be what we need."""

_NAMED: Final = 3
_EVERY_S: Final = 1.0
_REMIND_S: Final = 10.0


class NotReadyError(Exception):
    """Something was applied and does not do its work in time; the message says why."""


class FieldsTakenError(Exception):
    """Somebody else set fields of our objects to other values."""


class ElsewhereError(Exception):
    """It is installed in another namespace."""


class InUseError(Exception):
    """Pods hold cards, and could not end without the agents."""


@dataclass(slots=True)
class Installer:
    """Applies and removes objects.

    Attributes:
        session: the API server.
        say: told what was done, in lines.
        note: told what is waited for, in lines.
        timeout_s: how long to wait for one object that gets no further; None to wait for nothing.
        force: take fields that others own.
        every_s: between two looks at what is waited for.
    """

    session: Session
    say: Callable[[str], None]
    note: Callable[[str], None]
    timeout_s: float | None = 300
    force: bool = False
    every_s: float = _EVERY_S
    _discovery: Discovery = field(init=False)

    def __post_init__(self) -> None:
        self._discovery = Discovery(self.session)

    async def install(self, stages: Stages, obsolete: Sequence[Json] = ()) -> None:
        """Apply everything in order; wait for workloads before the API server is told of them.

        Args:
            stages: what to apply.
            obsolete: what another choice would have installed; deleted at the end.

        Raises:
            ElsewhereError: if it is in another namespace; nothing was changed then.
            InUseError: if obsolete agents are needed; nothing was changed then.
            UnknownKindError: if a kind is not served; nothing was changed then.
            FieldsTakenError: if somebody else owns a field.
            NotReadyError: if something does not get ready; what follows was not applied then.
        """
        for item in stages.forwards():
            await self._discovery.path(item)
        await self._check_namespace(stages.registrations)
        await self._check_unused(obsolete)
        for stage in stages.in_order():
            for item in stage:
                await self._apply(item)
            for item in stage:
                await self._await(item)
        for item in obsolete:
            await self._delete(item)

    async def remove(self, stages: Stages, extra: Sequence[Json], namespace: str) -> None:
        """Remove everything that is ours, in the opposite order; Namespaces last.

        Args:
            stages: what was applied.
            extra: what came into being later, by names that are known.
            namespace: that of the webhook, in which the replicas keep their ledgers.

        Raises:
            ElsewhereError: if it is in another namespace; nothing was changed then.
            InUseError: if agents would go whose cards are held; nothing was changed then.
            NotReadyError: if a Namespace is not gone in time.
        """
        await self._check_namespace(stages.registrations)
        await self._check_unused(stages.agents)
        backwards = stages.backwards()
        namespaces = [each for each in backwards if each["kind"] == "Namespace"]
        for item in (*(each for each in backwards if each not in namespaces), *extra):
            await self._delete(item)
        for item in await self._ledgers(namespace):
            await self._delete(item)
        for item in namespaces:
            await self._delete(item)
        for item in namespaces:
            await self._await_gone(item)

    async def _ledgers(self, namespace: str) -> list[Json]:
        """Return the ledgers that replicas wrote, which could do so until just now."""
        query = {"labelSelector": SELECTOR}
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        found = [each async for page in pages(self.session, path, query=query) for each in page]
        return [{"apiVersion": "v1", "kind": "ConfigMap", **each} for each in found]

    async def _check_namespace(self, registrations: Iterable[Json]) -> None:
        """See that what is registered, if anything is, is in the namespace that was named."""
        for item in registrations:
            stored = await self._read(await self._discovery.path(item))
            if found := _services(stored or {}) - _services(item):
                where = ", ".join(sorted(found))
                raise ElsewhereError(
                    f"hami-dra is in the namespace {where}, expected"
                    f" {', '.join(_services(item))}: give --namespace {where}, or uninstall it"
                    " there first"
                )

    async def _check_unused(self, going: Iterable[Json]) -> None:
        """See that no pod needs what goes to end."""
        paths = [await self._discovery.path(each) for each in going if is_needed_by_pods(each)]
        if not any([await self._read(path) for path in paths]):
            return
        if found := await holders(self.session):
            more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
            raise InUseError(
                f"{', '.join(found[:_NAMED])}{more} hold cards, and without the node agent they"
                " could not end: delete them first, or keep the agent (uninstall --keep-node-agent)"
            )

    async def _apply(self, item: Json) -> None:
        path = await self._discovery.path(item)
        before = await self._read(path)
        if before is not None and item["kind"] in _SHARED and not _is_ours(before):
            self.say(f"{title(item)} left alone: it was there before and is not ours")
            return
        try:
            after = await self.session.apply(path, item, manager=MANAGER, force=self.force)
        except ConflictError as error:
            raise FieldsTakenError(
                f"{title(item)}: somebody else set fields of it to other values"
                f" ({' '.join(error.message.split())}); take them with --force-conflicts"
            ) from error
        self.say(f"{title(item)} {_change(before, after)}")

    async def _read(self, path: str) -> Json | None:
        try:
            return await self.session.get(path)
        except NotFoundError:
            return None

    async def _await(self, item: Json) -> None:
        """Wait until an object does its work, and say now and then what it lacks."""
        if self.timeout_s is None or works_at_once(item):
            return
        path = await self._discovery.path(item)
        standstill = Standstill(self.timeout_s)
        told, told_at = "", 0.0
        while found := lacks(await self.session.get(path)):
            now = time.monotonic()
            if standstill.is_reached(found, now):
                raise NotReadyError(await self._explain(item, found))
            if found != told or now - told_at >= _REMIND_S:
                told, told_at = found, now
                self.note(f"waiting for {title(item)}: {found}")
            await asyncio.sleep(self.every_s)

    async def _explain(self, item: Json, found: str) -> str:
        """Say what an object lacks, and what the cluster says of its pods."""
        lines = [f"{title(item)} got no further for {self.timeout_s:g} s: {found}"]
        if "template" in item.get("spec", {}):
            namespace = item["metadata"]["namespace"]
            labels = item["spec"]["selector"]["matchLabels"]
            query = {"labelSelector": ",".join(f"{key}={value}" for key, value in labels.items())}
            core = f"/api/v1/namespaces/{namespace}"
            pods = await self.session.get(f"{core}/pods", query=query)
            warnings = {"fieldSelector": "type=Warning"}
            events = await self.session.get(f"{core}/events", query=warnings)
            stored = await self.session.get(await self._discovery.path(item))
            lines += dict.fromkeys(complaints(stored, pods["items"], events["items"]))
        return "\n  ".join(lines)

    async def _delete(self, item: Json) -> None:
        try:
            path = await self._discovery.path(item)
        except UnknownKindError:
            return
        found = await self._read(path)
        if found is None:
            return
        if item["kind"] in _SHARED and not _is_ours(found):
            self.say(f"{title(item)} left alone: it is not ours")
            return
        try:
            await self.session.delete(path)
        except NotFoundError:
            return
        self.say(f"{title(item)} deleted")

    async def _await_gone(self, item: Json) -> None:
        if self.timeout_s is None:
            return
        path = await self._discovery.path(item)
        end = time.monotonic() + self.timeout_s
        while (found := await self._read(path)) is not None and _is_ours(found):
            if time.monotonic() >= end:
                raise NotReadyError(f"{title(item)} was not gone within {self.timeout_s:g} s")
            await asyncio.sleep(self.every_s)


def _services(registration: Json) -> set[str]:
    """Return the namespaces of the Services that a registration calls; none if it calls URLs."""
    configs = [each["clientConfig"] for each in registration.get("webhooks") or ()]
    return {each["service"]["namespace"] for each in configs if each.get("service")}


def _is_ours(item: Json) -> bool:
    labels = item["metadata"].get("labels") or {}
    return PART_OF.items() <= labels.items()


def _change(before: Json | None, after: Json) -> str:
    if before is None:
        return "created"
    return "unchanged" if _content(before) == _content(after) else "configured"


def _content(item: Json) -> Json:
    """Return an object without what controllers and the API server note in it all the time."""
    notes = ("resourceVersion", "managedFields")
    metadata = {key: value for key, value in item["metadata"].items() if key not in notes}
    return {key: value for key, value in item.items() if key != "status"} | {"metadata": metadata}
