"""Start the components of one control plane and wait until each serves."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from hami_dra.lab import audit, controlplane, pki
from hami_dra.lab.build import Assets
from hami_dra.lab.controlplane import API_SERVER, CONTROLLER_MANAGER, ETCD, SCHEDULER, Ports
from hami_dra.lab.failure import ComponentError, LabError
from hami_dra.lab.layout import Layout
from hami_dra.lab.pki import Issuer
from hami_dra.lab.ports import LOOPBACK, free_ports
from hami_dra.lab.process import Launcher, Process
from hami_dra.lab.readiness import Probe, administrator_context
from hami_dra.lab.wait import until

_PORT_TAKEN = "address already in use"


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A control plane that serves.

    Attributes:
        server: the URL of its API server.
        processes: its components by name.
        restart: kills a component outright, starts it anew and waits until it serves.
    """

    server: str
    processes: Mapping[str, Process]
    restart: Callable[[str], None]


def bring_up(
    launcher: Launcher,
    assets: Assets,
    issuer: Issuer,
    *,
    audited: bool = False,
    gates: Mapping[str, bool] = MappingProxyType({}),
    choose_ports: Callable[[int], tuple[int, ...]] = free_ports,
    attempts: int = 3,
) -> ControlPlane:
    """Start a control plane; with other ports when somebody took the chosen ones meanwhile.

    Args:
        launcher: starts the components in its directory.
        assets: the programs.
        issuer: issues their certificates.
        audited: whether the API server keeps an audit log.
        gates: feature gates of the API server alone, read anew whenever it starts.
        choose_ports: returns so many ports that are free now.
        attempts: fresh ports are free; taken so often, something else is wrong.
    """
    start = _Start(launcher, assets, Ports(*choose_ports(3)), audited=audited, gates=gates)
    try:
        return start.run(issuer)
    except ComponentError as error:
        if attempts == 1 or _PORT_TAKEN not in error.log_tail:
            raise
    start.undo()
    return bring_up(
        launcher,
        assets,
        issuer,
        audited=audited,
        gates=gates,
        choose_ports=choose_ports,
        attempts=attempts - 1,
    )


class _Start:
    """One attempt to start a control plane."""

    def __init__(
        self,
        launcher: Launcher,
        assets: Assets,
        ports: Ports,
        *,
        audited: bool,
        gates: Mapping[str, bool],
    ) -> None:
        self._launcher = launcher
        self._assets = assets
        self._layout = Layout(launcher.directory)
        self._ports = ports
        self._audited = audited
        self._gates = gates
        self._processes: dict[str, Process] = {}

    def run(self, issuer: Issuer) -> ControlPlane:
        """Start everything in the order of need, waiting only where the next one must."""
        pki.write_pki(self._layout, issuer)
        self._layout.audit_policy.write_text(json.dumps(audit.policy()))
        server = f"https://{LOOPBACK}:{self._ports.api_server}"
        probe = Probe(self._layout.etcd_socket, self._ports, administrator_context(self._layout))
        self._launch(ETCD)
        # It begins with a second of work before it needs etcd.
        self._launch(API_SERVER)
        pki.write_kubeconfigs(self._layout, issuer, server)
        self._write_scheduler_config()
        self._await(ETCD, probe.etcd)
        self._await(API_SERVER, probe.api_server)
        # Started earlier, they are refused until the roles exist, and then wait longer to retry.
        self._launch(CONTROLLER_MANAGER)
        self._launch(SCHEDULER)
        self._await(CONTROLLER_MANAGER, probe.controller_manager)
        self._await(SCHEDULER, probe.scheduler)
        self._await(CONTROLLER_MANAGER, probe.default_service_account)
        return ControlPlane(server, self._processes, lambda name: self._restart(name, probe))

    def _restart(self, name: str, probe: Probe) -> None:
        self._processes[name].stop()
        self._launch(name)
        probes = {
            ETCD: probe.etcd,
            API_SERVER: probe.api_server,
            CONTROLLER_MANAGER: probe.controller_manager,
            SCHEDULER: probe.scheduler,
        }
        self._await(name, probes[name])

    def undo(self) -> None:
        """Leave nothing that would disturb another attempt."""
        for process in self._processes.values():
            process.stop()
            process.log.unlink()
        shutil.rmtree(self._layout.etcd_data, ignore_errors=True)

    def _write_scheduler_config(self) -> None:
        content = json.dumps(controlplane.scheduler_config(self._layout))
        self._layout.scheduler_config.write_text(content)

    def _launch(self, name: str) -> None:
        program = self._assets.directory / name
        # They are killed outright: what they would save goes away with the directory.
        process = self._launcher.start(name, [str(program), *self._arguments(name)], grace_s=0)
        self._processes[name] = process

    def _arguments(self, name: str) -> list[str]:
        if name == ETCD:
            return controlplane.etcd_arguments(self._layout)
        if name == API_SERVER:
            return self._api_server_arguments()
        arguments = {
            CONTROLLER_MANAGER: controlplane.controller_manager_arguments,
            SCHEDULER: controlplane.scheduler_arguments,
        }[name]
        return arguments(self._layout, self._ports, self._assets.version)

    def _api_server_arguments(self) -> list[str]:
        version = self._assets.version
        found = controlplane.api_server_arguments(self._layout, self._ports, version, self._gates)
        if self._audited:
            found += controlplane.audit_arguments(self._layout)
        return found

    def _await(self, name: str, is_ready: Callable[[], bool]) -> None:
        """Wait for an answer, but not longer than the components live."""

        def is_ready_or_dead() -> bool:
            for process in self._processes.values():
                process.check()
            return is_ready()

        try:
            until(is_ready_or_dead, what=f"{name} is ready", every_s=0.02)
        except TimeoutError as cause:
            tail = self._processes[name].log_tail()
            raise LabError(f"{cause}; the log of {name} ends with:\n{tail}") from cause
