"""What a scrape shows: HAMi's names and labels, from claims that the agent's own code made."""

import re
from pathlib import Path

import grpc
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families

from hami_dra.monitor.metrics import NodeCollector
from hami_dra.node.limits import PROCESS_GONE, DriverUsage
from tests.hami_dra.monitor.world import SECOND, World, by, held, series, write_slot
from tests.hami_dra.node.claims import CARDS, result

GOLDEN = Path(__file__).parent / "golden"
MIB = 2**20
LABELS = frozenset({"namespace", "pod", "container", "vdevice_index", "device_uuid", "zone"})


def a_usual_node(world: World) -> None:
    """Three pods: one that computes, one idle with two containers, one that has all of a card."""
    busy = world.pod("busy", result(0, memory="8000Mi", cores="30"))
    world.use(busy, 0, [1000 * MIB, 0, 0, 24 * MIB, 0, 300 * MIB, 9, 2, 500, 3 * SECOND])
    idle = [
        world.claim(result(0, memory="4000Mi", cores="0"), name="idle-a"),
        world.claim(result(1, memory="2000Mi", cores="10"), name="idle-b"),
    ]
    world.kubelet.hold("idle", {"cpu": [], "a": [idle[0]], "b": [idle[1]]})
    world.pod("whole", result(2, memory="81920Mi", cores="100", slots="100"))
    world.measure(busy, 5 * SECOND)
    world.scrape()
    world.measure(busy, 5 * SECOND + SECOND // 2)


@pytest.mark.parametrize("legacy", [False, True], ids=["names", "legacy-names"])
def test_a_scrape_of_a_usual_node(world: World, legacy: bool) -> None:  # noqa: FBT001
    """Names, labels, units and values; the golden files are read like any other page."""
    a_usual_node(world)

    found = world.scrape(legacy=legacy)

    golden = GOLDEN / f"{'legacy' if legacy else 'scrape'}.txt"
    assert found == golden.read_text()


@pytest.mark.parametrize("legacy", [False, True])
def test_both_formats_are_what_prometheus_reads(world: World, legacy: bool) -> None:  # noqa: FBT001
    a_usual_node(world)
    registry = CollectorRegistry()
    registry.register(NodeCollector(world.looker, legacy=legacy))

    plain = list(text_string_to_metric_families(world.scrape(legacy=legacy)))
    written = choose_encoder("application/openmetrics-text; version=1.0.0")[0](registry)
    modern = list(parse_open(written.decode()))  # type: ignore[no-untyped-call]

    assert [each.name for each in plain] == [each.name for each in modern]
    assert len({each.name for each in plain}) == len(plain)
    for family in plain:
        assert family.documentation
        assert family.type in {"gauge", "counter"}
        keys = [(sample.name, frozenset(sample.labels.items())) for sample in family.samples]
        assert len(set(keys)) == len(keys), "no series twice"
        if family.name.startswith("hami_"):
            assert re.fullmatch(r"[a-z][a-z0-9_]*", family.name)


def test_allocated_containers_show_limit_and_zero_usage_at_once(world: World) -> None:
    """Users asked why nothing shows before a program uses CUDA (report 48)."""
    world.pod("fresh", result(0, memory="3000Mi", cores="30"))

    text = world.scrape()

    for name, value in {
        "hami_vgpu_memory_limit_bytes": 3000 * MIB,
        "hami_vgpu_memory_used_bytes": 0,
        "hami_container_device_memory_bytes": 0,
        "hami_vgpu_memory_context_bytes": 0,
        "hami_vgpu_memory_buffer_bytes": 0,
        "hami_container_device_utilization_ratio": 0,
    }.items():
        [(labels, found)] = series(text, name).items()
        assert dict(labels).keys() == LABELS
        assert dict(labels)["zone"] == "vGPU"
        assert found == value, name


def test_a_card_alone_counts_as_all_of_it(world: World) -> None:
    """`gpu: 1` alone was reported as 0 cores (report 32), memory alone not at all (report 46)."""
    world.pod("whole", result(0, memory="81920Mi", cores="100", slots="100"))
    world.pod("memory", result(1, memory="4000Mi", cores="0"))

    text = world.scrape()

    assert by(series(text, "hami_vgpu_core_allocated_ratio"), "pod") == {"whole": 100, "memory": 0}
    assert by(series(text, "hami_vgpu_memory_allocated_bytes"), "pod") == {
        "whole": 81920 * MIB,
        "memory": 4000 * MIB,
    }
    assert by(series(text, "hami_gpu_core_allocated_ratio"), "device_uuid") == {
        CARDS[0].uuid: 100,
        CARDS[1].uuid: 0,
        CARDS[2].uuid: 0,
    }


def test_every_container_of_a_pod_shows_by_its_name(world: World) -> None:
    """Also between containers without a card (reports 41 and 42)."""
    first, second = (world.claim(result(0), name=name) for name in ("one", "two"))
    world.kubelet.hold("pod", {"cpu": [], "a": [first], "cpu2": [], "b": [second]})

    text = world.scrape()

    assert by(series(text, "hami_vgpu_memory_used_bytes"), "container") == {"a": 0, "b": 0}
    indices = by(series(text, "hami_vgpu_memory_allocated_bytes"), "container_index")
    assert set(indices) == {"1", "3"}


def test_cards_of_a_container_are_numbered_as_cuda_numbers_them(world: World) -> None:
    """Whatever order the scheduler chose, and in two claims as in one."""
    two = world.claim(result(2, memory="2Gi"), result(1, memory="1Gi"), name="two")
    more = world.claim(result(0, memory="3Gi"), result(1, memory="5Gi"), name="more")
    world.kubelet.hold("pod", {"main": [two, more]})
    world.use(two, 0, [10 * MIB], [20 * MIB])
    world.use(more, 0, [30 * MIB], [40 * MIB])

    text = world.scrape()

    limits = by(series(text, "hami_vgpu_memory_limit_bytes"), "vdevice_index", "device_uuid")
    assert limits == {
        ("0", CARDS[0].uuid): 3 * 2**30,
        ("1", CARDS[1].uuid): 6 * 2**30,
        ("2", CARDS[2].uuid): 2 * 2**30,
    }
    used = by(series(text, "hami_vgpu_memory_used_bytes"), "device_uuid")
    assert used == {CARDS[0].uuid: 30 * MIB, CARDS[1].uuid: 50 * MIB, CARDS[2].uuid: 20 * MIB}


def test_containers_that_share_a_claim_each_show_it_and_the_card_counts_it_once(
    world: World,
) -> None:
    shared = world.claim(result(0, memory="4Gi"), name="shared")
    world.kubelet.hold("pod", {"a": [shared], "b": [shared]})
    world.kubelet.hold("other", {"c": [shared]})
    world.use(shared, 0, [100 * MIB])

    text = world.scrape()

    used = by(series(text, "hami_vgpu_memory_used_bytes"), "pod", "container")
    assert used == dict.fromkeys([("pod", "a"), ("pod", "b"), ("other", "c")], 100 * MIB)
    allocated = by(series(text, "hami_gpu_memory_allocated_bytes"), "device_uuid")
    assert allocated[CARDS[0].uuid] == 4 * 2**30
    assert by(series(text, "hami_gpu_shared_count"), "device_uuid")[CARDS[0].uuid] == 1


def test_a_claim_that_a_container_has_twice_counts_once(world: World) -> None:
    """Kubelets before 1.36 list it for each request that a container takes of it."""
    made = world.claim(result(0, memory="4Gi", cores="20"), name="twice")
    world.kubelet.hold("pod", {"main": [made, made]})
    world.use(made, 0, [100 * MIB, 0, 0, 0, 0, 0, 0, 3])

    text = world.scrape()

    assert by(series(text, "hami_vgpu_memory_limit_bytes"), "pod") == {"pod": 4 * 2**30}
    assert by(series(text, "hami_vgpu_memory_used_bytes"), "pod") == {"pod": 100 * MIB}
    assert by(series(text, "hami_vgpu_core_allocated_ratio"), "pod") == {"pod": 20}
    assert by(series(text, "hami_dra_monitor_container_refusals_total"), "pod") == {"pod": 3}


def test_claims_of_other_drivers_and_of_the_past_are_not_ours(world: World) -> None:
    mine = world.pod("mine", result(0))
    foreign = [{**mine["status"]["allocation"]["devices"]["results"][0], "driver": "nic.example"}]
    other = {
        "metadata": {**mine["metadata"], "name": "nic"},
        "status": {"allocation": {"devices": {"results": foreign}}},
    }
    # A claim of the same name, which the kubelet holds and the agent does not know yet.
    again = {
        "metadata": mine["metadata"],
        "status": {
            "allocation": {
                "devices": {
                    "results": [
                        {
                            **mine["status"]["allocation"]["devices"]["results"][0],
                            "shareID": "another",
                        }
                    ]
                }
            }
        },
    }
    world.kubelet.hold("foreign", {"main": [other]})
    world.kubelet.hold("again", {"main": [again]})

    assert set(by(world.series("hami_vgpu_memory_used_bytes"), "pod")) == {"mine"}


def test_a_kubelet_that_does_not_tell_the_share_is_understood(world: World) -> None:
    made = world.claim(result(0), name="old")
    told = {"name": "main", "dynamic_resources": [held(made, is_share_told=False)]}
    world.kubelet.pods.append({"name": "old", "namespace": "team", "containers": [told]})

    assert by(world.series("hami_vgpu_memory_used_bytes"), "pod") == {"old": 0}


def test_series_live_as_long_as_the_container_and_its_claim(world: World) -> None:
    """Metrics of completed pods never disappeared, or not those of restarted ones (report 47)."""
    made = world.pod("job", result(0))
    world.use(made, 0, [50 * MIB])
    name = "hami_vgpu_memory_used_bytes"
    assert by(world.series(name), "pod") == {"job": 50 * MIB}

    world.use(made, 0, [70 * MIB], pid=99)  # the container was restarted
    assert by(world.series(name), "pod") == {"job": 70 * MIB}

    ended = world.kubelet.pods.pop()
    assert world.series(name) == {}, "the container is gone"
    assert world.series("hami_dra_monitor_unnamed_claims") == {frozenset(): 1}

    world.kubelet.pods.append(ended)
    world.agent.unprepare(made["metadata"]["uid"])
    text = world.scrape()
    assert series(text, name) == {}, "the claim is unprepared"
    assert series(text, "hami_dra_monitor_claims") == {frozenset(): 0}
    assert sum(series(text, "hami_gpu_memory_allocated_bytes").values()) == 0


def test_the_drivers_number_of_a_process_counts_when_it_is_larger(world: World) -> None:
    """As the library itself counts; of another process in the same slot it counts nothing."""
    made = world.pod("pod", result(0, memory="8Gi"))
    for slot, booked in enumerate((100, 200, 300)):
        world.use(made, slot, [booked * MIB, 0, 0, 0, 0, 10 * MIB], pid=10 + slot)

    def told(slot: int, mib: int, pid: int) -> DriverUsage:
        return DriverUsage(pid, 4000 + slot, 1000 + 10 + slot, (mib * MIB,))

    world.measure(
        made, 0, processes={0: told(0, 450, 10), 1: told(1, 150, 11), 2: told(2, 900, 77)}
    )

    text = world.scrape()
    assert by(series(text, "hami_vgpu_memory_buffer_bytes"), "pod") == {"pod": 600 * MIB}
    assert by(series(text, "hami_vgpu_memory_context_bytes"), "pod") == {"pod": (350 + 10) * MIB}
    assert by(series(text, "hami_vgpu_memory_used_bytes"), "pod") == {"pod": 960 * MIB}


def test_a_process_that_the_agent_saw_end_holds_nothing(world: World) -> None:
    made = world.pod("pod", result(0))
    for slot, booked in enumerate((100, 200)):
        world.use(made, slot, [booked * MIB], pid=10 + slot)
    ended = DriverUsage(11, PROCESS_GONE, 1000 + 11, (0,))

    world.measure(made, 0, processes={1: ended})

    assert by(world.series("hami_vgpu_memory_used_bytes"), "pod") == {"pod": 100 * MIB}


def test_compute_is_what_the_agent_measured_between_two_looks(world: World) -> None:
    made = world.pod("pod", result(0))
    name = "hami_container_device_utilization_ratio"
    assert by(world.series(name), "pod") == {"pod": 0}, "nobody is there to compute"

    world.use(made, 0, [MIB])
    assert world.series(name) == {}, "nobody has measured"
    world.measure(made, 10 * SECOND)
    assert world.series(name) == {}, "one look is no rate"
    world.now_ns += 2 * SECOND
    world.measure(made, 11 * SECOND)
    assert by(world.series(name), "pod") == {"pod": 25}, "1 s of 4"
    assert by(world.series(name), "pod") == {"pod": 25}, "nothing new was measured"
    world.measure(made, 3 * SECOND)
    assert world.series(name) == {}, "another agent counts from the beginning"
    world.now_ns += 60 * SECOND
    assert world.series(name) == {}, "nobody measures any more"
    assert by(world.series("hami_dra_monitor_measurement_age_seconds")) == {(): pytest.approx(66)}


@pytest.mark.parametrize("pause", ["nobody computes", "nobody measures"])
def test_what_comes_after_a_pause_is_not_spread_over_it(world: World, pause: str) -> None:
    """A container that began to compute showed next to nothing at first."""
    made, name = world.pod("pod", result(0)), "hami_container_device_utilization_ratio"
    world.use(made, 0, [MIB])
    for _ in range(2):
        world.measure(made, 10 * SECOND)
        world.scrape()
    if pause == "nobody computes":
        write_slot(world.folder(made) / "usage", 0, pid=7, state=0)
    world.now_ns += 3600 * SECOND
    assert by(world.series(name)) == ({(): 0} if pause == "nobody computes" else {})

    world.use(made, 0, [MIB], pid=8)
    world.measure(made, 11 * SECOND)
    assert world.series(name) == {}, "one look is no rate"
    world.measure(made, 13 * SECOND)
    assert by(world.series(name)) == {(): 100}


def test_counts_of_processes_outlive_them(world: World) -> None:
    made = world.pod("pod", result(0))
    name = "hami_dra_monitor_container_refusals_total"
    for slot, refused in enumerate((5, 3)):
        world.use(made, slot, [0] * 7 + [refused], pid=10 + slot)
    assert by(world.series(name), "pod") == {"pod": 8}

    world.use(made, 0, [0] * 7 + [2], pid=30)  # another process in the slot of the first
    assert by(world.series(name), "pod") == {"pod": 10}


@pytest.mark.parametrize("failure", ["refuses", "nonsense", "gone"])
def test_without_the_kubelet_cards_show_and_containers_do_not(world: World, failure: str) -> None:
    world.pod("pod", result(0, memory="4Gi"))
    world.scrape()
    if failure == "refuses":
        world.kubelet.refusal = (grpc.StatusCode.RESOURCE_EXHAUSTED, "too often")
    elif failure == "nonsense":
        world.kubelet.answer = b"\xff" * 100
    else:
        world.socket.unlink()

    text = world.scrape()

    assert series(text, "hami_vgpu_memory_used_bytes") == {}
    allocated = by(series(text, "hami_gpu_memory_allocated_bytes"), "device_uuid")
    assert allocated[CARDS[0].uuid] == 4 * 2**30
    assert series(text, "hami_dra_monitor_unnamed_claims") == {}, "nobody told who has which"
    up = by(series(text, "hami_dra_monitor_source_up"), "source")
    assert up == {"cards": 1, "claims": 1, "pod-resources": 0}
    errors = by(series(text, "hami_dra_monitor_errors_total"), "source", "device_uuid")
    assert errors["pod-resources", ""] == 1
    assert world.looker.problems()["pod-resources"]


def test_neither_kubelet_nor_cards_are_asked_twice_in_a_second(world: World) -> None:
    world.scrape()
    before = world.kubelet.calls

    registry = CollectorRegistry()
    registry.register(NodeCollector(world.looker))
    for _ in range(5):
        generate_latest(registry)

    assert world.kubelet.calls == before
