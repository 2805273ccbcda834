"""The command as people and the kubelet start it."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from hami_dra.lab.ports import LOOPBACK, free_ports
from hami_dra.lab.wait import until
from hami_dra.monitor.__main__ import command
from hami_dra.node.simulated import PROFILES
from tests.hami_dra.monitor.world import World, by, series
from tests.hami_dra.node.claims import CARDS, DRIVER, NODE, result

COMMAND = [sys.executable, "-W", "error", "-m", "hami_dra.monitor"]


@contextmanager
def running(*arguments: str, **variables: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    [port] = free_ports(1)
    where = ["--address", LOOPBACK, "--port", str(port), "--log-format", "text"]
    environment = {"PATH": os.environ["PATH"], **variables}
    with subprocess.Popen(
        [*COMMAND, *where, *arguments], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            until(lambda: fetched(port, "/healthz"), what="it serves", tolerate=(OSError,))
            yield process, port
        finally:
            process.kill()


def fetched(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://{LOOPBACK}:{port}{path}", timeout=30) as answer:
        text: str = answer.read().decode()
        return text


def simulated(world: World) -> Mapping[str, str]:
    """Return the variables of the world's agent, and of the monitor what is not the agent's."""
    return {
        "HAMI_DRA_NODE_NAME": NODE,
        "HAMI_DRA_NODE_DRIVER": DRIVER,
        "HAMI_DRA_NODE_DEVICES": "simulated",
        "HAMI_DRA_NODE_COUNT": "3",
        "HAMI_DRA_NODE_RUN_DIRECTORY": str(world.disk.root),
        "HAMI_DRA_MONITOR_POD_RESOURCES": str(world.socket),
    }


def test_it_shows_a_node_over_http_and_ends_at_once(world: World) -> None:
    made = world.pod("pod", result(0, memory="4Gi"))
    world.use(made, 0, [2**20])

    with running("--legacy-metrics", **simulated(world)) as (process, port):
        text = fetched(port, "/metrics")
        page = fetched(port, "/")
        still = fetched(port, "/?still")
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)

    assert by(series(text, "hami_vgpu_memory_used_bytes"), "device_uuid") == {CARDS[0].uuid: 2**20}
    assert by(series(text, "vGPU_device_memory_usage_in_bytes"), "podname") == {"pod": 2**20}
    assert series(text, "process_resident_memory_bytes")
    assert "team/pod" in page
    assert 'http-equiv="refresh"' in page
    assert "team/pod" in still
    assert 'http-equiv="refresh"' not in still
    assert process.returncode == 0
    assert "Traceback" not in said


def test_a_client_that_hangs_does_not_delay_its_end(world: World) -> None:
    with (
        running(**simulated(world)) as (process, port),
        socket.create_connection((LOOPBACK, port)) as hanging,
    ):
        hanging.sendall(b"GET /")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        assert process.returncode == 0


def test_help_says_what_every_setting_means(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        command(["--help"])

    assert end.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "[env: HAMI_DRA_MONITOR_LEGACY_METRICS]" in said
    assert "hami-dra-monitor --name try --devices simulated" in said
    assert "needs no right in the cluster" in said
    *models, last = sorted(PROFILES)
    assert f"Model of simulated cards: {', '.join(models)} or {last}. [default: a100-80g]" in said
    assert "[default: false] [env: HAMI_DRA_MONITOR_LEGACY_METRICS]" in said
    assert "[default: 8080] [env: HAMI_DRA_MONITOR_PORT]" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name: found none, expected --name or HAMI_DRA_MONITOR_NAME"),
        (["--name", "n", "--port", "65536"], "port: found '65536', expected a number from 0"),
        (["--name", "n", "--devices", "amd"], "devices: found 'amd', expected one of auto, nvml"),
        (["--name", "n", "--legacy-metrics", "yes"], "expected true or false"),
    ],
)
def test_a_wrong_setting_is_named(
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [each for each in os.environ if each.startswith("HAMI_DRA_")]:
        monkeypatch.delenv(name)

    assert command(arguments) == 2
    assert said in capsys.readouterr().err


def test_a_port_that_is_taken_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = str(taken.getsockname()[1])

        assert command(["--name", "n", "--address", LOOPBACK, "--port", port]) == 1

    assert "Address already in use" in capsys.readouterr().err


def test_what_a_monitor_loads_is_light(tmp_path: Path) -> None:
    """No client of the API server, no web framework, and neither gRPC nor NVML before a look."""
    code = """
import sys
import hami_dra.monitor.__main__
heavy = {"fastapi", "uvicorn", "pydantic", "kubernetes", "aiohttp", "typer", "grpc", "pynvml",
         "ruamel", "jsonpatch", "cryptography"}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"
