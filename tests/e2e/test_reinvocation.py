"""What others do to a pod before and after us: LimitRanges and other webhooks (ruling 20)."""

import base64
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hami_dra.kube.errors import ApiError
from hami_dra.lab.failure import KubectlError
from hami_dra.lab.ports import free_ports
from hami_dra.lab.readiness import is_ok
from hami_dra.lab.wait import until
from hami_dra.migration import Json
from tests.e2e.world import World, limit_range, managed_amounts, pod

pytestmark = pytest.mark.cluster

GPU = "nvidia.com/gpu"


def test_a_default_that_a_limit_range_puts_back_is_stripped_again(world: World) -> None:
    """The default is there before us, and again in the round after us."""
    world.add_node("a", a100_80g=1)
    world.apply(limit_range(default={GPU: "1"}, defaultRequest={GPU: "1"}))
    world.await_limit_range("bounds")
    world.apply(pod("p", {"gpumem": 512}))

    share = world.share("p")

    assert (share.memory_mib, share.cores) == (512, 0)
    assert managed_amounts(world.pod("p")) == [{}]
    assert len(world.pod("p")["spec"]["resourceClaims"]) == 1


def test_a_maximum_of_a_limit_range_leaves_a_zero_that_runs(world: World) -> None:
    world.add_node("a", a100_80g=1)
    world.apply(limit_range(max={GPU: "4"}))

    def created() -> bool:
        # The webhook learns of the LimitRange by a watch, a moment after kubectl.
        world.apply(pod("p", {"gpu": 1, "gpumem": 512}))
        return True

    until(created, what="the webhook knows the LimitRange", tolerate=(KubectlError,))

    assert world.share("p").memory_mib == 512
    assert managed_amounts(world.pod("p")) == [{GPU: "0"}]


@pytest.mark.parametrize("bound", ["min", "maxLimitRequestRatio"])
def test_what_a_limit_range_demands_is_refused_with_what_to_do(world: World, bound: str) -> None:
    """Without us the API server refuses the converted pod, and says nothing of the conversion."""
    world.add_node("a", a100_80g=1)
    world.apply(limit_range(**{bound: {GPU: "1"}}))

    def refusal() -> str | None:
        try:
            world.apply(pod("p", {"gpu": 1, "gpumem": 512}))
        except KubectlError as error:
            return error.stderr if "remove" in error.stderr else None
        return None

    said = until(refusal, what="the pod is refused by us")

    assert f"sets a minimum or a ratio of {GPU}" in said
    assert f"remove {GPU} from the LimitRange's min" in said


@contextmanager
def injector(world: World, name: str) -> Iterator[None]:
    """Register a second webhook for the test's namespace, before or after ours by its name."""
    cluster, [port] = world.scene.cluster, free_ports(1)
    serving = cluster.issuer.server("injector")
    files = cluster.directory / f"injector-{port}"
    files.mkdir()
    for file, content in (("crt", serving.certificate_pem), ("key", serving.key_pem)):
        (files / file).write_bytes(content)
    argv = [sys.executable, "-m", "tests.e2e.injector", str(files / "crt"), str(files / "key")]
    root = {"PYTHONPATH": str(Path(__file__).parents[2])}
    process = cluster.start_process(f"injector-{port}", [*argv, str(port)], root)
    context = ssl.create_default_context(cadata=cluster.ca_pem.decode())
    until(lambda: is_ok(port, "/", context), what="the injector serves")
    api = world.scene.api
    api.create("mutatingwebhookconfigurations", registration(world, name, port))
    try:
        until(lambda: sidecar_seen(world), what="the injector is called", tolerate=(ApiError,))
        yield
    finally:
        api.delete("mutatingwebhookconfigurations", name)
        cluster.stop_process(process)


def registration(world: World, name: str, port: int) -> Json:
    bundle = base64.b64encode(world.scene.cluster.ca_pem).decode()
    own = {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}}
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": "injector.example.com",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": f"https://127.0.0.1:{port}/", "caBundle": bundle},
                "namespaceSelector": own,
                "rules": [{**pods, "operations": ["CREATE"]}],
                "sideEffects": "None",
            }
        ],
    }


def sidecar_seen(world: World) -> bool:
    probe = pod("probe", {"gpumem": 100})
    query = {"dryRun": "All"}
    seen = world.scene.api.create("pods", probe, namespace=world.namespace, query=query)
    return len(seen["spec"]["containers"]) == 2


@pytest.mark.parametrize("name", ["aaa-before-ours", "zzz-after-ours"])
def test_a_sidecar_that_another_webhook_injects_is_converted_too(world: World, name: str) -> None:
    world.add_node("a", a100_80g=1)
    with injector(world, name):
        world.apply(pod("p", {"gpumem": 512}))

    world.await_scheduled("p")

    seen = world.pod("p")
    assert managed_amounts(seen) == [{}, {}]
    assert sorted(share.memory_mib for share in world.shares()) == [300, 512]
    assert [entry["name"] for entry in seen["spec"]["resourceClaims"]] == [
        "gpu-main",
        "gpu-sidecar",
    ]


def test_what_comes_into_a_plain_pod_after_us_is_refused_by_the_guard(world: World) -> None:
    """The API server does not call us a first time in its second round (ruling 27)."""
    with injector(world, "zzz-after-ours"), pytest.raises(KubectlError) as refused:
        world.apply(pod("p", {"cpu": 1}))

    assert "another webhook added them after it" in refused.value.stderr
    assert "hami.io/webhook: ignore" in refused.value.stderr
