"""A kubelet that speaks the real plugin protocol and keeps its rules, without containers.

It watches the registry, asks for information within a second, takes the first advertised version
it knows, answers, keeps the connection, and calls prepare and unprepare within 45 seconds.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from grpc import aio

from hami_dra.lab.wait import until
from hami_dra.node import wire
from hami_dra.node.messages import (
    ClaimReference,
    DeviceHealth,
    PluginInfo,
    Prepared,
    RegistrationStatus,
)

INFORMATION_S = 1.0
ATTEMPTS = 30
CALL_S = 45.0
KNOWN = {
    "v1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
    "v1beta1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
}


@dataclass
class RegisteredPlugin:
    """A plugin that was accepted, and the line to it."""

    information: PluginInfo
    service: str
    channel: aio.Channel

    async def prepare(
        self, *claims: ClaimReference, timeout_s: float = CALL_S
    ) -> dict[str, Prepared]:
        """Prepare, and insist on one answer for each claim as the kubelet does."""
        call = self.channel.unary_unary(
            f"/{self.service}/NodePrepareResources", wire.encode_claims, wire.decode_prepared
        )
        answers: dict[str, Prepared] = await call(claims, timeout=timeout_s)
        assert answers.keys() == {claim.uid for claim in claims}
        return answers

    async def unprepare(self, *claims: ClaimReference) -> dict[str, str]:
        """Unprepare, and insist on one answer for each claim as the kubelet does."""
        call = self.channel.unary_unary(
            f"/{self.service}/NodeUnprepareResources", wire.encode_claims, wire.decode_unprepared
        )
        answers: dict[str, str] = await call(claims, timeout=CALL_S)
        assert answers.keys() == {claim.uid for claim in claims}
        return answers

    async def health(
        self, service: str = "v1.DRAResourceHealth"
    ) -> AsyncGenerator[tuple[DeviceHealth, ...], None]:
        """Follow the devices' health."""
        call = self.channel.unary_stream(
            f"/{service}/NodeWatchResources", wire.encode_empty, wire.decode_health
        )
        async for devices in call(None):
            yield devices


@dataclass
class FakeKubelet:
    """The kubelet's side of plugin registration.

    Attributes:
        registry: the folder with registration sockets.
        versions: services that this kubelet knows, by advertised name.
        refusal: the error with which it refuses plugins; empty to accept them.
    """

    registry: Path
    versions: Mapping[str, str] = field(default_factory=lambda: KNOWN)
    refusal: str = ""

    def sockets(self) -> list[Path]:
        """Return what a walk through the registry finds."""
        return sorted(self.registry.glob("*-reg.sock"))

    @asynccontextmanager
    async def registered(self, socket: Path | None = None) -> AsyncIterator[RegisteredPlugin]:
        """Register a plugin and keep the line to it."""
        [found] = [socket] if socket else self.sockets()
        async with aio.insecure_channel(f"unix:{found}") as registration:
            ask = registration.unary_unary(
                "/pluginregistration.Registration/GetInfo",
                wire.encode_empty,
                wire.decode_plugin_info,
            )
            tell = registration.unary_unary(
                "/pluginregistration.Registration/NotifyRegistrationStatus",
                wire.encode_status,
                wire.decode_empty,
            )
            information = await _insist(ask)
            assert information.type == "DRAPlugin"
            await tell(RegistrationStatus(not self.refusal, self.refusal), timeout=60)
        async with aio.insecure_channel(f"unix:{information.endpoint}") as channel:
            service = _first(information.versions, self.versions)
            yield RegisteredPlugin(information, service, channel)

    async def follow(self) -> None:
        """Wait until a plugin shows itself, as the kubelet's watch would."""
        await asyncio.to_thread(
            until, lambda: self.sockets() or None, what="a plugin shows itself", every_s=0.005
        )


async def _insist(ask: "aio.UnaryUnaryMultiCallable[object, PluginInfo]") -> PluginInfo:
    """Ask for information as the kubelet does: again, where a second was not enough."""
    for _ in range(ATTEMPTS - 1):
        try:
            return await ask(None, timeout=INFORMATION_S)
        except aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                raise
    return await ask(None, timeout=INFORMATION_S)


def _first(advertised: Iterable[str], known: Mapping[str, str]) -> str:
    return next(known[name] for name in advertised if name in known)
