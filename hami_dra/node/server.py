"""Serve the kubelet on Unix sockets: DRA and health on one, registration on the other.

The kubelet finds the registration socket the moment it exists and then waits one second for an
answer, so it is bound last, by a server that does nothing else (ruling 38).
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import grpc
from grpc import aio

from hami_dra.node import wire
from hami_dra.node.health import HealthBoard
from hami_dra.node.messages import (
    DRA_SERVICES,
    HEALTH_SERVICES,
    REGISTRATION,
    ClaimReference,
    DeviceHealth,
    PluginInfo,
    Prepared,
    RegistrationStatus,
)
from hami_dra.node.metrics import Metrics
from hami_dra.node.plugin import Plugin
from hami_dra.node.sockets import Sockets

ADVERTISED: Final = (*DRA_SERVICES, *HEALTH_SERVICES)
"""What the plugin says it serves; the kubelet takes the first that it knows of each kind."""

DRAIN_S: Final = 10.0
"""Seconds for calls in progress at shutdown."""

# The stubs know type parameters that the classes at run time do not.
_Methods: TypeAlias = "Mapping[str, grpc.RpcMethodHandler[Any, Any]]"
_Context: TypeAlias = "aio.ServicerContext[Any, Any]"

_log = logging.getLogger(__name__)


class KubeletServer:
    """Both servers of one instance.

    Args:
        sockets: where to listen.
        driver: the driver's name.
        plugin: prepares claims.
        health: tells how devices are.
        metrics: shows whether the kubelet accepted us.

    Attributes:
        refusal: why the kubelet refused us; empty when it did not.
    """

    def __init__(
        self,
        sockets: Sockets,
        *,
        driver: str,
        plugin: Plugin,
        health: HealthBoard,
        metrics: Metrics,
    ) -> None:
        self._sockets = sockets
        self._plugin = plugin
        self._health = health
        self._metrics = metrics
        self._info = PluginInfo("DRAPlugin", driver, str(sockets.plugin), ADVERTISED)
        self._servers: list[aio.Server] = []
        self._registered = asyncio.Event()
        self._is_serving = False
        self.refusal = ""

    @property
    def is_registered(self) -> bool:
        """Tell whether the kubelet accepted the plugin."""
        return self._registered.is_set()

    @property
    def gone(self) -> str:
        """Return which socket somebody has removed: nobody can call, and nothing else tells."""
        if not self._is_serving:
            return ""
        paths = (self._sockets.registration, self._sockets.plugin)
        lost = [str(path) for path in paths if not path.is_socket()]
        return f"found no socket {', '.join(lost)}: somebody removed it" if lost else ""

    async def registered(self) -> None:
        """Wait until the kubelet has accepted the plugin."""
        await self._registered.wait()

    async def start(self) -> None:
        """Listen, on the registration socket last."""
        for path in (self._sockets.plugin, self._sockets.registration):
            self._remove(path)
        await self._listen(self._sockets.plugin, self._plugin_handlers())
        await self._listen(self._sockets.registration, [self._registration_handler()])
        self._is_serving = True

    async def stop(self) -> None:
        """Leave the kubelet's list, let calls in progress finish, and remove both sockets."""
        self._is_serving = False
        # The kubelet deregisters a plugin whose registration socket goes.
        self._remove(self._sockets.registration)
        self._health.close()
        for server in reversed(self._servers):
            await server.stop(DRAIN_S)
        self._servers.clear()
        self._remove(self._sockets.plugin)

    @staticmethod
    def _remove(path: Path) -> None:
        path.unlink(missing_ok=True)

    async def _listen(self, path: Path, handlers: list[grpc.GenericRpcHandler]) -> None:
        server = aio.server()
        server.add_generic_rpc_handlers(handlers)
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        self._servers.append(server)

    def _plugin_handlers(self) -> list[grpc.GenericRpcHandler]:
        prepare = grpc.unary_unary_rpc_method_handler(
            self._prepare, wire.decode_claims, wire.encode_prepared
        )
        unprepare = grpc.unary_unary_rpc_method_handler(
            self._unprepare, wire.decode_claims, wire.encode_unprepared
        )
        watch = grpc.unary_stream_rpc_method_handler(
            self._watch, wire.decode_empty, wire.encode_health
        )
        methods: _Methods = {
            "NodePrepareResources": prepare,
            "NodeUnprepareResources": unprepare,
        }
        dra = [_handler(service, methods) for service in DRA_SERVICES.values()]
        health = [_handler(service, {"NodeWatchResources": watch}) for service in HEALTH_SERVICES]
        return [*dra, *health]

    def _registration_handler(self) -> grpc.GenericRpcHandler:
        information = grpc.unary_unary_rpc_method_handler(
            self._information, wire.decode_empty, wire.encode_plugin_info
        )
        notify = grpc.unary_unary_rpc_method_handler(
            self._notify, wire.decode_status, wire.encode_empty
        )
        methods: _Methods = {"GetInfo": information, "NotifyRegistrationStatus": notify}
        return _handler(REGISTRATION, methods)

    async def _prepare(
        self, claims: tuple[ClaimReference, ...], context: _Context
    ) -> Mapping[str, Prepared]:
        return await self._plugin.prepare(claims, context.time_remaining)

    async def _unprepare(
        self, claims: tuple[ClaimReference, ...], _: _Context
    ) -> Mapping[str, str]:
        return await self._plugin.unprepare(claims)

    async def _watch(self, _: None, __: _Context) -> AsyncIterator[tuple[DeviceHealth, ...]]:
        async for devices in self._health.stream():
            yield devices

    async def _information(self, _: None, __: _Context) -> PluginInfo:
        return self._info

    async def _notify(self, status: RegistrationStatus, _: _Context) -> None:
        self._metrics.registered.set(status.is_registered)
        self.refusal = "" if status.is_registered else status.error or "without a reason"
        if status.is_registered:
            _log.info("the kubelet registered the plugin")
            self._registered.set()
        else:
            _log.error("the kubelet refused the plugin: %s", self.refusal)
            self._registered.clear()


def _handler(service: str, methods: _Methods) -> grpc.GenericRpcHandler:
    return grpc.method_handlers_generic_handler(service, dict(methods))
