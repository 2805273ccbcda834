"""A real Kubernetes control plane for tests and for people, up in seconds and gone without a trace.

with Cluster.start() as cluster:
cluster.kubectl("get", "nodes")
"""

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from certs.authority import KeyPair
from hami_dra.lab import build, pki, toolchain
from hami_dra.lab.audit import AuditLog
from hami_dra.lab.failure import KubectlError, LabError
from hami_dra.lab.layout import Layout
from hami_dra.lab.pki import Issuer
from hami_dra.lab.process import DEFAULT_GRACE_S, Launcher, Process
from hami_dra.lab.startup import ControlPlane, bring_up


class Cluster:
    """A running control plane and whatever was started beside it.

    Attributes:
        directory: private (0700); everything of the cluster lies here and vanishes with it.
        version: of Kubernetes, such as `1.37.2`.
        server: the URL of the API server.
        kubeconfig: the administrator's kubeconfig file.
        processes: the components of the control plane by name.
        restart: kills a component by name, starts it anew and waits until it serves.
        issuer: issues further certificates under the cluster's authority.
    """

    def __init__(
        self, *, launcher: Launcher, version: str, issuer: Issuer, control_plane: ControlPlane
    ) -> None:
        self._layout = Layout(launcher.directory)
        self._launcher = launcher
        self._kubectl = toolchain.find("kubectl")
        self.directory = launcher.directory
        self.version = version
        self.server = control_plane.server
        self.processes = control_plane.processes
        self.restart = control_plane.restart
        self.kubeconfig = self._layout.kubeconfig(pki.ADMIN)
        self.issuer = issuer

    @classmethod
    def start(
        cls,
        *,
        version: str | None = None,
        directory: Path | None = None,
        audited: bool = False,
        gates: Mapping[str, bool] = MappingProxyType({}),
    ) -> Self:
        """Start a control plane and return when pods can be created in it.

        Args:
            version: such as `1.37` or `1.37.2`; default is the prebuilt one, or else
                `modules.DEFAULT`, which is built at its first use.
            directory: must not exist yet; default is a new one below the system's temporary one.
            audited: keep an audit log, see `audit`.
            gates: feature gates of the API server alone, read anew whenever it starts.
        """
        assets = build.assets(version)
        launcher = Launcher((directory or _new_directory()).resolve())
        try:
            issuer = pki.create_issuer(datetime.now(UTC))
            return cls(
                launcher=launcher,
                version=assets.version,
                issuer=issuer,
                control_plane=bring_up(launcher, assets, issuer, audited=audited, gates=gates),
            )
        except BaseException:
            launcher.stop_all()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def audit(self) -> AuditLog:
        """The API server's audit log."""
        log = AuditLog(self._layout.audit_log)
        if not log.path.exists():
            raise LabError(
                f"{log.path}: found no audit log, expected a cluster that keeps one; start it with"
                " audited=True"
            )
        return log

    @property
    def authority(self) -> KeyPair:
        """The cluster's authority, for servers and clients alike."""
        return self.issuer.authority

    @property
    def ca_pem(self) -> bytes:
        """The authority's certificate, which signed the API server's."""
        return self.issuer.authority.certificate_pem

    def kubectl(
        self,
        *arguments: str,
        stdin: str | bytes | None = None,
        check: bool = True,
        kubeconfig: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl against this cluster and nothing else.

        Args:
            *arguments: what stands after `kubectl`.
            stdin: for `-f -`.
            check: raise a `KubectlError` when kubectl fails.
            kubeconfig: whose eyes to look with; default is the administrator.
        """
        text = stdin.decode() if isinstance(stdin, bytes) else stdin
        done = subprocess.run(
            [self._kubectl, "--kubeconfig", kubeconfig or self.kubeconfig, *arguments],
            input=text or "",
            env=self._kubectl_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode:
            raise KubectlError(arguments, done.returncode, done.stderr)
        return done

    def start_process(
        self,
        name: str,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        grace_s: float = DEFAULT_GRACE_S,
    ) -> Process:
        """Start a program beside the control plane; it ends with the cluster at the latest.

        Args:
            name: names its log.
            argv: the program and its arguments; it runs in the cluster's directory.
            env: added to this process's environment.
            grace_s: between SIGTERM and SIGKILL.
        """
        return self._launcher.start(name, argv, env=env, grace_s=grace_s)

    def stop_process(self, process: Process) -> None:
        """End one process and its group; see `Process.stop`."""
        process.stop()

    def check(self) -> None:
        """Raise a `ComponentError` when a component of the control plane has ended."""
        for process in self.processes.values():
            process.check()

    def logs(self, name: str) -> str:
        """Return all that a process has written."""
        return (self._layout.logs / f"{name}.log").read_text(errors="replace")

    def collect_logs(self, into: Path) -> None:
        """Copy the logs of all processes into a folder, for a look after the cluster is gone."""
        shutil.copytree(self._layout.logs, into, dirs_exist_ok=True)

    def detach(self) -> int:
        """Let the cluster run on after this process; return the process id of its keeper.

        `stop_detached(cluster.directory)`, or SIGTERM to the keeper, ends it.
        """
        return self._launcher.detach()

    def stop(self) -> None:
        """End every process and remove the directory; stopping again changes nothing."""
        self._launcher.stop_all()

    def _kubectl_environment(self) -> dict[str, str]:
        # A person's preferences must not change what a test sees, nor a test their cache.
        ours = {"KUBECACHEDIR": str(self._layout.kubectl_cache), "KUBERC": "off"}
        return {**os.environ, **ours}


def _new_directory() -> Path:
    """Name a directory that the keeper will make, short enough for a socket's path."""
    return Path(tempfile.gettempdir()) / f"hami-dra-{secrets.token_hex(4)}"
