"""Legacy quotas on a real control plane: they hold whoever asks, and at once."""

import json
from functools import partial

import pytest

from hami_dra.lab.wait import until
from hami_dra.migration import Policy
from hami_dra.migration.registration import NAME, claim_webhook_configuration
from tests.e2e.quotas import (
    VALIDATING,
    await_room,
    claim,
    converted,
    is_bound,
    ledger,
    name_of,
    refusal,
    refused_claim,
    set_quota,
    shown,
    together,
    two_replicas,
)
from tests.e2e.rotation import rotating
from tests.e2e.world import World, owner_of, pod

pytestmark = pytest.mark.cluster

MEMORY = "limits.nvidia.com/gpumem"
CORES = "limits.nvidia.com/gpucores"


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
    until(partial(used, world), what="the API server's own count is written")
    assert used(world) == {"requests.nvidia.com/gpu": "0"}
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


def used(world: World) -> dict[str, str] | None:
    """Return what the API server itself counts of the quota, once it does."""
    found = world.scene.api.get("resourcequotas", "gpus", namespace=world.namespace)
    counted: dict[str, str] | None = (found.get("status") or {}).get("used")
    return counted


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
    for node in ("b", "c"):  # one card each: 1.34 counts the cards of a node together
        world.add_node(node, l4_24g=1)
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

    until(lambda: ledger(world) is None, what="the ledger is gone")


def test_claims_racing_through_two_replicas_take_all_there_is_and_no_more(world: World) -> None:
    with two_replicas(world):
        set_quota(world, {MEMORY: 16000})
        path = f"/apis/resource.k8s.io/v1/namespaces/{world.namespace}/resourceclaims"

        for once_more in range(2):
            claims = [claim(name_of(number), "3000Mi") for number in range(30)]
            said = together(world.scene.api, path, claims)

            assert said.count("") == len(world.objects("resourceclaims")) == 5, said
            refused = {each.split(", requested")[0].split(": ", 2)[-1] for each in said if each}
            assert refused == {"exceeded quota: gpus"}, (once_more, said)
            world.kubectl("delete", "resourceclaims", "--all")
            await_room(world, path)


def test_pods_racing_through_two_replicas_run_as_far_as_the_quota_goes(world: World) -> None:
    """Thirty pods at once: many pass before any claim shows, but five claims do."""
    world.add_node("a", a100_80g=4)
    with two_replicas(world):
        set_quota(world, {MEMORY: 16000})
        path = f"/api/v1/namespaces/{world.namespace}/pods"
        pods = [pod(name_of(number), {"gpu": 1, "gpumem": 3000}) for number in range(30)]

        said = together(world.scene.api, path, pods)

        assert all("exceeded quota: gpus" in each for each in said if each), said
        created = {each["metadata"]["name"] for each in world.objects("pods")}
        running = {each["metadata"]["name"] for each in world.await_all_scheduled(5)}
        for name in created - running:
            told = until(partial(refused_claim, world, name), what=f"{name} is told")
            assert f"exceeded quota: gpus, requested: {MEMORY}=3000 MiB" in told
        assert len(world.objects("resourceclaims")) == 5
        assert shown(world)[MEMORY]["used"] == 15000


def test_a_pod_whose_claim_was_refused_runs_when_there_is_room(world: World) -> None:
    """By itself, and at once when it is touched; a finished pod makes room like a deleted one."""
    world.add_node("a", a100_80g=1)
    waiting = [converted(world, name, 8000) for name in ("first", "second")]
    set_quota(world, {MEMORY: 8000})
    until(lambda: shown(world)[MEMORY]["used"] == 0, what="the quota is free")
    world.apply(pod("before", {"gpu": 1, "gpumem": 8000}))
    world.await_scheduled("before")
    world.apply(*waiting)
    for name in ("first", "second"):
        until(partial(refused_claim, world, name), what=f"{name} is told")
    assert not is_bound(world, "first", "second")

    world.delete("before")
    until(lambda: is_bound(world, "first", "second"), what="one of them runs")
    done, left = ("first", "second") if is_bound(world, "first") else ("second", "first")
    assert not is_bound(world, left)

    until(lambda: world.pod(done)["status"]["phase"] == "Running", what=f"{done} runs")
    finished = {"status": {"phase": "Succeeded"}}
    world.scene.api.patch("pods", f"{done}/status", finished, namespace=world.namespace)
    until(
        lambda: all(owner_of(each) != done for each in world.objects("resourceclaims")),
        what="a finished pod takes nothing",
    )
    world.kubectl("annotate", "pod", left, "touched=now")
    until(lambda: is_bound(world, left), what="the other one runs at once")


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
        # It would refuse the probe by which the registration is awaited.
        world.kubectl("delete", "resourcequota", "gpus")
        assert rotation.replicas[0].metric('hami_dra_quota_refusals_total{what="claim"}') > 0
