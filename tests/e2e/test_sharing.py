"""Unmodified legacy manifests on a real control plane: who ends up on which card with how much."""

import pytest

from hami_dra.lab.shares import tenants
from hami_dra.migration import Json
from hami_dra.migration.record import ANNOTATION
from tests.e2e.world import World, pod

pytestmark = pytest.mark.cluster

# 8k is how the API server writes 8000.
LIMITS = {"cpu": "1", "nvidia.com/gpu": "1", "nvidia.com/gpumem": "8k", "nvidia.com/gpucores": "30"}


def deployment(replicas: int) -> Json:
    labels = {"app": "inference"}
    container = {"name": "server", "image": "none", "resources": {"limits": LIMITS}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "inference"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def test_replicas_share_one_card_and_their_workload_stays_as_written(world: World) -> None:
    """Three times 8000 MiB and 30 percent fit one card; 40 percent more do not."""
    [card] = world.add_node("a", a100_80g=1)
    world.apply(deployment(3))

    pods = world.await_all_scheduled(3)

    shares = world.shares()
    assert [(s.uuid, s.memory_mib, s.cores) for s in shares] == [(card.uuid, 8000, 30)] * 3
    for owner in ("deployments", "replicasets"):
        [stored] = world.objects(owner)
        template = stored["spec"]["template"]
        [container] = template["spec"]["containers"]
        assert container["resources"] == {"limits": LIMITS}
        assert "resourceClaims" not in template["spec"]
        assert ANNOTATION not in template["metadata"].get("annotations", {})
    for each in pods:
        resources = each["spec"]["containers"][0]["resources"]
        assert resources["limits"] == {"cpu": "1"}
        assert resources["claims"] == [{"name": "gpu-server"}]

    world.apply(pod("fourth", {"gpu": 1, "gpumem": 8000, "gpucores": 40}))

    assert "cannot allocate all claims" in world.await_refused("fourth")


def test_memory_only_pods_share_a_card_without_a_core_limit(world: World) -> None:
    [card] = world.add_node("a", a100_80g=1)
    world.apply(pod("one", {"gpu": 1, "gpumem": 1000}), pod("two", {"gpumem": 2000}))

    one, two = world.share("one"), world.share("two")

    assert (one.uuid, one.memory_mib, one.cores) == (card.uuid, 1000, 0)
    assert (two.uuid, two.memory_mib, two.cores) == (card.uuid, 2000, 0)


def test_a_count_alone_waits_for_an_empty_card_and_keeps_it(world: World) -> None:
    world.add_node("a", a100_80g=1)
    world.apply(pod("tenant", {"gpumem": 512}))
    world.await_scheduled("tenant")
    world.apply(pod("owner", {"gpu": 1}))
    world.await_refused("owner")

    world.delete("tenant")

    share = world.share("owner")
    assert (share.memory_mib, share.cores, share.slots) == (81920, 100, 100)
    world.apply(pod("late", {"gpumem": 512}))
    world.await_refused("late")


def test_an_exclusive_card_with_less_memory_is_alone_too(world: World) -> None:
    """Memory and cores cannot say "an empty card"; slots can (ruling 4)."""
    world.add_node("a", a100_80g=1)
    world.apply(pod("owner", {"gpu": 1, "gpumem": 512, "gpucores": 100}))

    share = world.share("owner")

    assert (share.memory_mib, share.cores, share.slots) == (512, 100, 100)
    world.apply(pod("late", {"gpumem": 512}))
    world.await_refused("late")


def test_the_eleventh_tenant_of_a_card_waits_until_one_leaves(world: World) -> None:
    [card] = world.add_node("a", a100_80g=1)
    world.apply(*(pod(f"tenant-{number}", {"gpumem": 512}) for number in range(10)))
    world.await_all_scheduled(10)
    world.apply(pod("eleventh", {"gpumem": 512}))
    world.await_refused("eleventh")

    world.delete("tenant-3")

    world.await_scheduled("eleventh")
    assert tenants(world.shares()) == {card.uuid: 10}


def test_a_full_card_leaves_the_node_s_other_card_to_the_next_pod(world: World) -> None:
    """Not so where the scheduler counts all cards of a node together (.github/VERSIONS.md)."""
    first, second = world.add_node("a", a100_80g=2)
    world.apply(pod("one", {"gpumem": 50000}))
    world.await_scheduled("one")
    world.apply(pod("two", {"gpumem": 50000}))

    if world.kubernetes.tells_cards_apart:
        world.await_scheduled("two")
        assert tenants(world.shares()) == {first.uuid: 1, second.uuid: 1}
    else:
        world.await_refused("two")


def test_two_cards_are_two_different_cards_and_a_third_is_not_invented(world: World) -> None:
    cards = world.add_node("a", l4_24g=2)
    world.apply(pod("two", {"gpu": 2, "gpumem": 5000, "gpucores": 20}))
    world.await_scheduled("two")

    shares = world.shares()

    assert {share.uuid for share in shares} == {card.uuid for card in cards}
    assert {(share.memory_mib, share.cores) for share in shares} == {(5000, 20)}
    world.apply(pod("three", {"gpu": 3, "gpumem": 100}))
    world.await_refused("three")


def test_more_cards_than_a_node_has_leave_the_scheduler_alive(world: World) -> None:
    """With `count: 3`, Kubernetes 1.34's scheduler ended here (ruling 10)."""
    world.add_node("a", l4_24g=2)
    world.apply(pod("three", {"gpu": 3, "gpumem": 100}))

    world.await_refused("three")

    world.scene.cluster.check()
    world.apply(pod("two", {"gpu": 2, "gpumem": 100}))
    world.await_scheduled("two")
    assert len({share.uuid for share in world.shares()}) == 2


def test_a_hundred_equal_pods_need_one_template_and_leave_no_claim(world: World) -> None:
    for node in "abcdefghij":
        world.add_node(node, a100_80g=1)
    names = [f"equal-{number}" for number in range(100)]
    world.apply(*(pod(name, {"gpumem": 500}) for name in names))
    world.await_all_scheduled(100)

    templates = world.objects("resourceclaimtemplates")
    claims = world.objects("resourceclaims")
    world.kubectl("delete", "pods", "--all", "--wait=false")

    assert len(templates) == 1
    assert len(claims) == 100
    world.await_nothing("pods")
    world.await_nothing("resourceclaims")


def test_a_percentage_is_taken_of_the_cards_that_the_cluster_shows(world: World) -> None:
    """Two sizes give one claim with an alternative for each (ruling 7)."""
    world.add_node("a", a100_80g=1)
    world.add_node("b", l4_24g=1)
    world.await_card_sizes(81920, 23034)
    world.apply(
        pod("big", {"gpumem-percentage": 50}, annotations={"nvidia.com/use-gputype": "A100"}),
        pod("small", {"gpumem-percentage": 50}, annotations={"nvidia.com/use-gputype": "L4"}),
    )

    assert world.share("big").memory_mib == 40960
    assert world.share("small").memory_mib == 11517


def test_the_scheduler_name_of_hami_becomes_the_default_one(world: World) -> None:
    world.add_node("a", a100_80g=1)
    legacy = pod("legacy", {"gpumem": 512})
    legacy["spec"]["schedulerName"] = "hami-scheduler"
    world.apply(legacy)

    world.await_scheduled("legacy")

    assert world.pod("legacy")["spec"]["schedulerName"] == "default-scheduler"
