"""The lab's control plane is a real one, shares the host, and leaves nothing behind."""

import json
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hami_dra.lab import build, modules, pki
from hami_dra.lab.cluster import Cluster
from hami_dra.lab.failure import KubectlError, LabError
from hami_dra.lab.ports import LOOPBACK, free_ports
from hami_dra.lab.process import Launcher, stop_detached
from hami_dra.lab.startup import bring_up
from hami_dra.lab.wait import until
from tests.e2e.world import PATIENCE

pytestmark = pytest.mark.cluster

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "fake"}}


@pytest.fixture(scope="module")
def cluster(kube_version: str | None) -> Iterator[Cluster]:
    with Cluster.start(version=kube_version) as cluster:
        yield cluster


def traces(directory: Path) -> list[str]:
    """Find what is left of a cluster: its directory, and processes that name it."""
    found = [str(directory)] if directory.exists() else []
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            argv = cmdline.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(directory) in argv:
            found.append(argv.replace("\0", " "))
    return found


def await_no_trace(directory: Path) -> None:
    def gone() -> bool:
        left = traces(directory)
        if left:
            # An OSError is "not yet" to `until`, which shows the last one.
            raise FileExistsError(*left)
        return True

    until(gone, what=f"nothing is left of {directory}")


def test_the_server_is_the_version_asked_for(cluster: Cluster, kube_version: str | None) -> None:
    version = json.loads(cluster.kubectl("version", "--output=json").stdout)["serverVersion"]

    assert version["gitVersion"] == f"v{cluster.version}"
    assert f"{version['major']}.{version['minor']}" == modules.minor(cluster.version)
    assert cluster.version.startswith(kube_version or modules.DEFAULT)


def test_the_api_that_the_product_needs_is_served(cluster: Cluster) -> None:
    served = cluster.kubectl("api-resources", "--api-group=resource.k8s.io", "--output=name")

    assert {f"{kind}.resource.k8s.io" for kind in ("deviceclasses", "resourceclaims")} <= set(
        served.stdout.split()
    )


def test_two_clusters_at_one_time_hold_different_data(cluster: Cluster) -> None:
    with Cluster.start(version=cluster.version) as other:
        for one, word in ((cluster, "first"), (other, "second")):
            one.kubectl("create", "configmap", "word", f"--from-literal=word={word}")

        words = [
            one.kubectl("get", "configmap", "word", "--output=jsonpath={.data.word}").stdout
            for one in (cluster, other)
        ]

        assert words == ["first", "second"]
        assert cluster.ca_pem != other.ca_pem
        other.stop()
        assert traces(other.directory) == []


def test_a_pod_is_scheduled_to_a_node_that_is_only_an_object(cluster: Cluster) -> None:
    """It takes the API server, both controllers and scheduler, and nobody evicts the pod."""
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(NODE))
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
    }
    patch = json.dumps({"status": status})
    cluster.kubectl("patch", "node", "fake", "--subresource=status", "--patch", patch)
    cluster.kubectl("taint", "node", "fake", "node.kubernetes.io/not-ready-", check=False)

    cluster.kubectl("run", "pod", "--image=none")

    cluster.kubectl("wait", "pod/pod", "--for=condition=PodScheduled", PATIENCE)


def test_a_kubeconfig_with_a_token_is_that_service_account(
    cluster: Cluster, tmp_path: Path
) -> None:
    token = cluster.kubectl("create", "token", "default").stdout
    path = tmp_path / "kubeconfig"
    pki.write_kubeconfig(path, pki.kubeconfig(cluster.server, cluster.ca_pem, token))

    who = cluster.kubectl("auth", "whoami", "--output=json", kubeconfig=path)

    user = json.loads(who.stdout)["status"]["userInfo"]["username"]
    assert user == "system:serviceaccount:default:default"


def test_kubectl_fails_with_what_the_server_said(cluster: Cluster) -> None:
    with pytest.raises(KubectlError, match='namespaces "no-such" not found') as error:
        cluster.kubectl("get", "namespace", "no-such")

    assert error.value.code == 1
    assert cluster.kubectl("get", "namespace", "no-such", check=False).returncode == 1


def test_without_being_asked_no_audit_log_is_kept(cluster: Cluster) -> None:
    with pytest.raises(LabError, match="start it with audited=True"):
        _ = cluster.audit


def test_another_process_runs_and_logs_beside_the_control_plane(
    cluster: Cluster, tmp_path: Path
) -> None:
    process = cluster.start_process("other", ["sh", "-c", "echo $WORD"], {"WORD": "hello"})
    until(lambda: process.poll() is not None, what="it ended")

    cluster.stop_process(process)
    cluster.collect_logs(tmp_path)

    assert cluster.logs("other") == "hello\n"
    collected = {path.name for path in tmp_path.iterdir()}
    assert {"etcd.log", "kube-apiserver.log", "kube-scheduler.log", "other.log"} <= collected


def test_a_port_that_was_taken_meanwhile_is_replaced(
    tmp_path: Path, kube_version: str | None
) -> None:
    launcher = Launcher(tmp_path / "lab")
    try:
        with socket.create_server((LOOPBACK, free_ports(1)[0])) as squatter:
            taken = squatter.getsockname()[1]
            choices = iter([(taken, *free_ports(2)), free_ports(3)])

            control_plane = bring_up(
                launcher,
                build.assets(kube_version),
                pki.create_issuer(datetime.now(UTC)),
                choose_ports=lambda _count: next(choices),
            )

        assert not control_plane.server.endswith(f":{taken}")
    finally:
        launcher.stop_all()


def test_a_killed_harness_leaves_nothing(tmp_path: Path, kube_version: str | None) -> None:
    directory = tmp_path / "lab"
    code = f"""
        from pathlib import Path
        from hami_dra.lab.cluster import Cluster
        Cluster.start(version={kube_version!r}, directory=Path({str(directory)!r}))
        print("ready", flush=True)
        input()
    """
    argv = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as harness:
        assert harness.stdout is not None
        assert harness.stdout.readline() == "ready\n"
        assert len(traces(directory)) > 5

        harness.kill()

    await_no_trace(directory)


def lab_up(kube_version: str | None, *options: str) -> list[str]:
    """Return the command that starts a control plane."""
    version = ["--version", kube_version] if kube_version else []
    return [sys.executable, "-m", "hami_dra.lab", "up", *version, *options]


def test_the_command_line_leaves_one_running_and_stops_it(kube_version: str | None) -> None:
    argv = lab_up(kube_version, "--detach")
    shown = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    kubeconfig = Path(shown.removeprefix("export KUBECONFIG=").strip())
    directory = kubeconfig.parents[1]
    assert len(traces(directory)) > 5

    stop_detached(directory)

    await_no_trace(directory)


def test_the_command_line_ends_cleanly_when_terminated(kube_version: str | None) -> None:
    argv = lab_up(kube_version)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        shown = up.stdout.readline()
        directory = Path(shown.removeprefix("export KUBECONFIG=").strip()).parents[1]
        assert len(traces(directory)) > 5

        up.terminate()
        _, said = up.communicate()

    assert up.returncode == 0
    assert said.endswith("stopped\n")
    assert traces(directory) == []
