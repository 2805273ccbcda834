"""Start the webhook and its competitors on the core of servers, and learn where they listen."""

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from certs.authority import KeyPair, Usage, create_authority, issue
from hami_dra.lab import webhook
from hami_dra.lab.cluster import Cluster
from hami_dra.lab.ports import LOOPBACK
from hami_dra.lab.process import Launcher, Process
from hami_dra.lab.wait import until

_LIFETIME: Final = timedelta(days=1)
_URL: Final = re.compile(r"listen\w* on https://(\S+?)[\"\s]")
_AUTHORITY: Final = re.compile(r"signed by (\S+),")
_PIN: Final = (
    "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])});"
    " os.execv(sys.argv[2], sys.argv[2:])"
)
"""Becomes another program on one core; Go counts its cores when it starts."""


@dataclass(frozen=True, slots=True)
class Server:
    """Somebody who answers reviews.

    Attributes:
        name: what the table calls it.
        pid: its process.
        address: host and port.
        authority: the PEM file that its certificate is checked with.
    """

    name: str
    pid: int
    address: str
    authority: Path


def pinned(core: int, argv: Sequence[str]) -> list[str]:
    """Return the call that runs a program on one core."""
    return [sys.executable, "-c", _PIN, str(core), *argv]


def pin(pid: int, core: int) -> None:
    """Move a running process to one core."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


def start_ours(launcher: Launcher, core: int) -> Server:
    """Start the webhook without a cluster: its templates are in memory."""
    arguments = ["-m", "webhook", "--standalone", "--port", "0", "--log-format", "json"]
    return _start_python(launcher, core, "hami-dra", arguments)


def start_ordinary(launcher: Launcher, core: int) -> Server:
    """Start the FastAPI endpoint with pydantic models."""
    program = Path(__file__).with_name("ordinary.py")
    return _start_python(launcher, core, "FastAPI + pydantic", [str(program)])


def start_typed(launcher: Launcher, core: int, program: Path) -> Server:
    """Start the Go webhook that decodes the pod into its type."""
    now = datetime.now(UTC)
    authority = create_authority("bench", now=now, lifetime=_LIFETIME)
    leaf = issue(
        authority,
        common_name="bench",
        usages=(Usage.SERVER,),
        now=now,
        lifetime=_LIFETIME,
        ip_addresses=(LOOPBACK,),
    )
    files = launcher.directory / "typed"
    call = [str(program), *_files(files, leaf, authority.certificate_pem)]
    process = launcher.start("typed-go", pinned(core, call))
    return Server("typed Go", process.pid, _address(process), files / "ca.crt")


def start_claims(cluster: Cluster, core: int, program: Path) -> Server:
    """Start the Go webhook that creates a claim for each container."""
    arguments = pinned(core, [str(program), "--kubeconfig", str(cluster.kubeconfig)])
    files = cluster.directory / "bench"
    serving = cluster.issuer.server("bench")
    process = cluster.start_process("bench", [*arguments, *_files(files, serving, cluster.ca_pem)])
    return Server("creates claims", process.pid, _address(process), files / "ca.crt")


def start_in_cluster(cluster: Cluster, core: int) -> Server:
    """Start the webhook beside a control plane, as it ships."""
    running = webhook.start(cluster, name="bench-webhook")
    pin(running.process.pid, core)
    authority = cluster.directory / "bench-webhook" / "ca.crt"
    authority.write_bytes(cluster.ca_pem)
    address = f"{LOOPBACK}:{running.port}"
    return Server("hami-dra, in a cluster", running.process.pid, address, authority)


def _start_python(launcher: Launcher, core: int, name: str, arguments: Sequence[str]) -> Server:
    argv = pinned(core, [sys.executable, *arguments])
    process = launcher.start(name.replace(" ", "-"), argv)
    address = _address(process)
    authority = _AUTHORITY.search(process.log.read_text())
    assert authority is not None, "it is printed with the address"
    return Server(name, process.pid, address, Path(authority[1]))


def _files(directory: Path, leaf: KeyPair, authority_pem: bytes) -> list[str]:
    """Write a certificate and return the flags that name its files."""
    directory.mkdir(exist_ok=True)
    (directory / "tls.crt").write_bytes(leaf.certificate_pem)
    (directory / "tls.key").write_bytes(leaf.key_pem)
    (directory / "ca.crt").write_bytes(authority_pem)
    return ["--tls-cert", str(directory / "tls.crt"), "--tls-key", str(directory / "tls.key")]


def _address(process: Process) -> str:
    """Wait until a server says where it listens."""

    def said() -> str | None:
        process.check()
        found = _URL.search(process.log.read_text())
        return found[1] if found else None

    return until(said, what=f"{process.name} listens", timeout_s=60)
