"""Legacy quotas on a real control plane: they hold whoever asks, and at once."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hami_dra.kube.errors import ApiError, NotFoundError
from hami_dra.kube.ledgers import PREFIX
from hami_dra.kube.session import Session
from hami_dra.lab import webhook
from hami_dra.lab.api import Api
from hami_dra.lab.failure import KubectlError
from hami_dra.lab.wait import until
from hami_dra.migration import Json, Policy
from hami_dra.migration.family import DRIVER
from hami_dra.migration.registration import (
    NAME,
    SYSTEM_NAMESPACE,
    claim_webhook_configuration,
)
from tests.e2e.rotation import rotating
from tests.e2e.world import World, pod

pytestmark = pytest.mark.cluster

VALIDATING = "validatingwebhookconfigurations"
GPU = "nvidia.com/gpu"
MEMORY = "limits.nvidia.com/gpumem"
CORES = "limits.nvidia.com/gpucores"


def claim(name: str, memory: str | None, device_class: str = DRIVER) -> Json:
    """Write a claim by hand; without an amount it asks for a whole card."""
    exactly: Json = {"deviceClassName": device_class}
    if memory:
        exactly["capacity"] = {"requests": {"memory": memory, "cores": "0"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


def set_quota(world: World, hard: Mapping[str, object]) -> None:
    """Set the quota `gpus` and wait until both admissions heed it."""
    amounts = {key: str(amount) for key, amount in hard.items()}
    world.apply(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "gpus"},
            "spec": {"hard": amounts},
        }
    )
    too_much = claim("probe", "900Ti")
    limited = next(f"limited: {key}={amount} " for key, amount in amounts.items())

    def heeded() -> bool:
        try:
            world.scene.api.create(
                "resourceclaims", too_much, namespace=world.namespace, query={"dryRun": "All"}
            )
        except ApiError as refused:
            return limited in refused.message
        return False

    until(heeded, what="the quota is heeded")


def refusal(world: World, manifest: Json) -> str:
    """Return what a user sees who creates what does not fit."""
    with pytest.raises(KubectlError) as refused:
        world.apply(manifest)
    return refused.value.stderr


def shown(world: World) -> dict[str, Json]:
    """Return what `hami-dra quota` prints of each key."""
    program = Path(sys.executable).with_name("hami-dra")
    kubeconfig = str(world.scene.cluster.kubeconfig)
    arguments = ["-n", world.namespace, "-o", "json", "--kubeconfig", kubeconfig]
    done = subprocess.run(
        [program, "quota", *arguments], check=True, capture_output=True, text=True
    )
    return {each["key"]: each for each in json.loads(done.stdout)}


def ledger(world: World) -> Json | None:
    """Return the ledger of the test's namespace."""
    return world.scene.api.find(
        "configmaps", f"{PREFIX}{world.namespace}", namespace=SYSTEM_NAMESPACE
    )


def events_of(world: World, name: str) -> str:
    """Return what the events of a pod say."""
    return "\n".join(
        f"{event['reason']}: {event['message']}"
        for event in world.objects("events")
        if event["involvedObject"]["name"] == name
    )


def test_two_pods_fit_and_the_third_is_told_why_not_until_one_goes(world: World) -> None:
    """The API server counts nothing of a converted pod, and demands nothing of it either."""
    world.add_node("a", a100_80g=1)
    set_quota(world, {MEMORY: 16000, CORES: 200, "requests.nvidia.com/gpu": 5})
    world.apply(pod("a", {"gpu": 1, "gpumem": 8000}), pod("b", {"gpu": 1, "gpumem": 8000}))
    world.await_scheduled("a", "b")

    said = refusal(world, pod("c", {"gpu": 1, "gpumem": 8000}))

    assert "Error from server (Forbidden)" in said
    assert (
        f"exceeded quota: gpus, requested: {MEMORY}=8000 MiB, used: {MEMORY}=16000 MiB,"
        f" limited: {MEMORY}=16000 MiB"
    ) in said
    status = world.scene.api.get("resourcequotas", "gpus", namespace=world.namespace)["status"]
    assert status["used"] == {"requests.nvidia.com/gpu": "0"}
    figures = shown(world)
    assert (figures[MEMORY]["used"], figures[MEMORY]["hard"]) == (16000, 16000)
    assert figures[MEMORY]["percent"] == 100
    assert {each["name"] for each in figures[MEMORY]["pods"]} == {"a", "b"}
    assert figures["requests.nvidia.com/gpu"]["used"] == 2

    world.delete("a")
    until(
        lambda: (
            not world.kubectl(
                "create",
                "-f",
                "-",
                stdin=json.dumps(pod("c", {"gpu": 1, "gpumem": 8000})),
                check=False,
            ).returncode
        ),
        what="there is room for the third",
    )
    world.await_scheduled("c")


def test_a_claim_written_by_hand_counts_like_any_other(world: World) -> None:
    set_quota(world, {MEMORY: 10000})
    world.apply(claim("mine", "8000Mi"))

    said = refusal(world, claim("more", "3000Mi"))

    assert 'admission webhook "claims.hami-dra.io" denied the request: exceeded quota' in said
    assert f"requested: {MEMORY}=3000 MiB, used: {MEMORY}=8000 MiB" in said
    world.apply(claim("rest", "2000Mi"), claim("others", None, "someone-elses"))
    world.kubectl("delete", "resourceclaim", "mine")
    until(
        lambda: (
            not world.kubectl(
                "create", "-f", "-", stdin=json.dumps(claim("more", "3000Mi")), check=False
            ).returncode
        ),
        what="there is room again",
    )


def test_a_whole_card_counts_as_the_largest_until_it_is_known(world: World) -> None:
    """Shares by percent and whole cards count at what they take."""
    world.add_node("a", a100_80g=1)
    world.add_node("b", l4_24g=2)
    world.await_card_sizes(23034, 81920)
    set_quota(world, {MEMORY: 130000, CORES: 300})
    on_l4 = {"nvidia.com/use-gputype": "L4"}

    world.apply(pod("whole", {"gpu": 1}, annotations=on_l4))
    world.await_scheduled("whole")
    until(lambda: shown(world)[MEMORY]["used"] == 23034, what="the smaller card counts")
    assert shown(world)[CORES]["used"] == 100
    world.apply(pod("half", {"gpu": 1, "gpumem-percentage": 50}, annotations=on_l4))
    world.await_scheduled("half")
    until(lambda: shown(world)[MEMORY]["used"] == 23034 + 11517, what="half a card counts")

    world.apply(claim("waits", None))
    assert shown(world)[MEMORY]["used"] == 23034 + 11517 + 81920
    assert f"requested: {MEMORY}=81920 MiB" in refusal(world, pod("more", {"gpu": 1}))


def test_a_lowered_quota_stops_nobody_and_lets_nobody_in(world: World) -> None:
    world.add_node("a", a100_80g=1)
    set_quota(world, {MEMORY: 16000})
    world.apply(pod("a", {"gpu": 1, "gpumem": 8000}))
    world.await_scheduled("a")

    set_quota(world, {MEMORY: 4000})

    said = refusal(world, pod("b", {"gpu": 1, "gpumem": 1}))
    assert f"used: {MEMORY}=8000 MiB, limited: {MEMORY}=4000 MiB" in said
    assert world.share("a").memory_mib == 8000


def test_a_dry_run_is_judged_and_writes_nothing_and_no_quota_costs_nothing(world: World) -> None:
    world.add_node("a", a100_80g=1)
    world.apply(pod("before", {"gpu": 1, "gpumem": 100}), claim("mine", "100Mi"))
    world.await_scheduled("before")
    assert ledger(world) is None
    set_quota(world, {MEMORY: 16000})

    for manifest in (pod("p", {"gpu": 1, "gpumem": 100}), claim("c", "100Mi")):
        world.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(manifest))
    for manifest in (pod("p", {"gpu": 1, "gpumem": 16000}), claim("c", "16000Mi")):
        refused = world.kubectl(
            "create", "--dry-run=server", "-f", "-", stdin=json.dumps(manifest), check=False
        )
        assert f"used: {MEMORY}=200 MiB" in refused.stderr

    assert ledger(world) is None
    world.apply(claim("c", "100Mi"))
    assert ledger(world) is not None


def test_a_ledger_goes_with_its_namespace(world: World) -> None:
    set_quota(world, {MEMORY: 16000})
    world.apply(claim("c", "100Mi"))
    assert ledger(world) is not None

    world.kubectl("delete", "resourceclaims", "--all")
    world.scene.api.delete("namespaces", world.namespace, wait=False)

    until(lambda: ledger(world) is None, what="the ledger is gone", timeout_s=90)


@contextmanager
def two_replicas(world: World) -> Iterator[None]:
    """Have claims of even names judged by one replica and all others by another one."""
    scene = world.scene
    second = webhook.start(scene.cluster, name="webhook-2")
    scene.api.delete(VALIDATING, NAME)
    both = claim_webhook_configuration(Policy(), {})
    [model] = both["webhooks"]
    is_even = 'object.metadata.name.startsWith("even-")'
    both["webhooks"] = [
        {
            **model,
            "name": f"{name}.hami-dra.io",
            "clientConfig": config,
            "matchConditions": [
                *model["matchConditions"],
                {"name": "one-of-two", "expression": expression},
            ],
        }
        for name, config, expression in (
            ("even", scene.webhook.claim_config, is_even),
            ("odd", second.claim_config, f"!{is_even}"),
        )
    ]
    scene.api.create(VALIDATING, both)
    try:
        yield
    finally:
        scene.api.delete(VALIDATING, NAME)
        scene.cluster.stop_process(second.process)
        model["clientConfig"] = scene.webhook.claim_config
        scene.api.create(VALIDATING, {**both, "webhooks": [model]})


def name_of(number: int) -> str:
    """Return a name for one replica or the other, in turn."""
    return f"{('even', 'odd')[number % 2]}-{number}"


async def attempt(create: Coroutine[Any, Any, Json]) -> str:
    """Return what a creation ends with: its refusal, or an empty text."""
    try:
        await create
    except ApiError as error:
        return str(error)
    return ""


def together(api: Api, path: str, manifests: list[Json]) -> list[str]:
    """Create all at the same time; return the refusals."""

    async def race(session: Session) -> list[str]:
        return await asyncio.gather(*(attempt(session.create(path, each)) for each in manifests))

    return api.run(race)


def test_claims_racing_through_two_replicas_take_all_there_is_and_no_more(world: World) -> None:
    with two_replicas(world):
        set_quota(world, {MEMORY: 16000})
        path = f"/apis/resource.k8s.io/v1/namespaces/{world.namespace}/resourceclaims"

        for once_more in range(3):
            claims = [claim(name_of(number), "3000Mi") for number in range(30)]
            said = together(world.scene.api, path, claims)

            assert said.count("") == len(world.objects("resourceclaims")) == 5, said
            refused = {each.split(", requested")[0].split(": ", 2)[-1] for each in said if each}
            assert refused == {"exceeded quota: gpus"}, (once_more, said)
            world.kubectl("delete", "resourceclaims", "--all")
            until(lambda: shown(world)[MEMORY]["used"] == 0, what="all is free again")
            await_room(world, path)


def await_room(world: World, path: str) -> None:
    """Wait until both replicas have seen that all is free again."""

    def is_free(prefix: str) -> Callable[[], bool]:
        whole = claim(f"{prefix}-probe", "16000Mi")

        async def ask(session: Session) -> str:
            return await attempt(session.create(path, whole, query={"dryRun": "All"}))

        return lambda: not world.scene.api.run(ask)

    for prefix in ("even", "odd"):
        until(is_free(prefix), what=f"the {prefix} replica knows")


def test_pods_that_came_past_the_early_check_wait_and_run_when_there_is_room(world: World) -> None:
    """Thirty pods at once: all pass before any claim shows, five claims pass, others wait."""
    world.add_node("a", a100_80g=4)
    with two_replicas(world):
        set_quota(world, {MEMORY: 16000})
        path = f"/api/v1/namespaces/{world.namespace}/pods"
        pods = [pod(name_of(number), {"gpu": 1, "gpumem": 3000}) for number in range(30)]
        said = together(world.scene.api, path, pods)
        assert all("exceeded quota: gpus" in each for each in said if each), said
        created = [each["metadata"]["name"] for each in world.objects("pods")]
        assert len(created) > 5

        running = {each["metadata"]["name"] for each in world.await_all_scheduled(5)}
        waiting = [name for name in created if name not in running]
        for name in waiting:
            until(partial(events_of, world, name), what=f"{name} is told")
        seen = events_of(world, waiting[0])
        assert "FailedResourceClaimCreation" in seen
        assert "exceeded quota: gpus, requested: limits.nvidia.com/gpumem=3000 MiB" in seen
        assert len(world.objects("resourceclaims")) == 5

        for name in running:
            world.scene.api.delete("pods", name, namespace=world.namespace, wait=False)
        until(
            lambda: any(world.pod(name)["spec"].get("nodeName") for name in waiting),
            what="a waiting pod runs",
            timeout_s=120,
            tolerate=(NotFoundError,),
        )
        assert len(world.objects("resourceclaims")) <= 5


def test_the_bundle_of_the_claims_registration_is_kept_right_too(world: World) -> None:
    with rotating(world, authority_s=90 * 24 * 3600, leaf_s=24 * 3600) as rotation:
        port = rotation.replicas[0].port
        url = {"url": f"https://127.0.0.1:{port}/validate"}
        world.scene.api.create(VALIDATING, claim_webhook_configuration(Policy(), url))

        def bundle() -> str | None:
            [found] = world.scene.api.get(VALIDATING, NAME)["webhooks"]
            text: str | None = found["clientConfig"].get("caBundle")
            return text

        until(lambda: bundle() in rotation.bundles(), what="it trusts the authority")
        set_quota(world, {MEMORY: 100})
        assert "exceeded quota: gpus" in refusal(world, claim("c", "101Mi"))
        assert rotation.replicas[0].metric('hami_dra_quota_refusals_total{what="claim"}') > 0
