"""Containers write `usage`: whatever stands there harms their own series and no other."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hami_dra.migration import Json
from hami_dra.monitor import claims as reading
from hami_dra.node import limit_files
from hami_dra.node.limits import CONTROL_BYTES, USAGE_BYTES
from tests.hami_dra.monitor.world import World, by, series, write_slot
from tests.hami_dra.node.claims import result

MIB = 2**20


def replaced_by_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


def replaced_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replaced_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def cut(path: Path) -> None:
    os.truncate(path, USAGE_BYTES - 1)


def grown(path: Path) -> None:
    os.truncate(path, 2**40)


def filled(path: Path) -> None:
    path.write_bytes(b"\xff" * USAGE_BYTES)


def absurd(path: Path) -> None:
    write_slot(path, 3, [2**63], pid=5)


SPOILT = [replaced_by_link, replaced_by_pipe, replaced_by_folder, cut, grown, filled, absurd]


@pytest.mark.parametrize("spoil", SPOILT)
def test_a_spoilt_usage_loses_its_own_series_and_is_counted(
    world: World, spoil: Callable[[Path], None]
) -> None:
    bad, good = world.pod("bad", result(0, memory="4Gi")), world.pod("good", result(0))
    world.use(good, 0, [MIB])
    spoil(world.folder(bad) / "usage")

    text = world.scrape()

    assert by(series(text, "hami_vgpu_memory_used_bytes"), "pod") == {"good": MIB}
    limits = by(series(text, "hami_vgpu_memory_limit_bytes"), "pod")
    assert limits["bad"] == 4 * 2**30, "what the agent wrote is still known"
    assert by(series(text, "hami_dra_monitor_files_refused_total"), "file")["usage"] == 1
    assert all(world.looker.look().works.values())


def test_a_spoilt_control_or_record_is_counted_and_what_is_known_is_shown(world: World) -> None:
    no_control, no_record = world.pod("control", result(0)), world.pod("record", result(0))
    (world.folder(no_control) / "control").write_bytes(bytes(CONTROL_BYTES))
    (world.folder(no_record) / "record.json").write_text('{"namespace": 1')

    text = world.scrape()

    limits = by(series(text, "hami_vgpu_memory_limit_bytes"), "pod")
    assert limits == {"control": 4 * 2**30}, "from its record"
    assert series(text, "hami_vgpu_memory_used_bytes") == {}
    assert series(text, "hami_dra_monitor_container_refusals_total") == {}, "not known, not zero"
    refused = by(series(text, "hami_dra_monitor_files_refused_total"), "file")
    assert refused == {"control": 1, "record": 1, "usage": 0}


@pytest.mark.parametrize(
    "share", [{"shareID": ["x"]}, {"shareID": {}}, {"memoryMiB": float("inf")}, None], ids=str
)
def test_a_record_of_another_form_hides_no_other_claim(world: World, share: Json | None) -> None:
    """As a release may write it that nobody knows yet; None is one without an end."""
    bad, _ = world.pod("bad", result(0)), world.pod("good", result(0))
    path = world.folder(bad) / "record.json"
    record = json.loads(path.read_text())
    record["shares"][0] |= share or {}
    path.write_text(json.dumps(record) if share else "[" * 200_000)

    text = world.scrape()

    assert set(by(series(text, "hami_vgpu_memory_used_bytes"), "pod")) == {"good"}
    assert by(series(text, "hami_dra_monitor_files_refused_total"), "file")["record"] == 1


def test_a_claim_that_is_just_made_or_removed_is_no_trouble(world: World) -> None:
    made = world.pod("pod", result(0))
    for name in ("usage", "control", "record.json"):
        (world.folder(made) / name).unlink()
        text = world.scrape()
        assert sum(series(text, "hami_dra_monitor_files_refused_total").values()) == 0


def test_names_that_are_none_of_claims_are_passed_over(world: World) -> None:
    claims = world.disk.directories.claims
    (claims / ".being-made").mkdir()
    (claims / "a file").write_text("")

    assert reading.read(claims) == reading.ClaimsReading(())


def test_a_node_without_an_agent_has_no_claims(world: World) -> None:
    assert reading.read(world.disk.root / "nothing") == reading.ClaimsReading(())


def test_a_directory_that_cannot_be_listed_is_a_source_that_fails(world: World) -> None:
    """What claims hold is not known then, which is another thing than nothing."""
    world.pod("pod", result(0))
    claims = world.disk.directories.claims
    claims.rename(world.disk.root / "elsewhere")
    claims.write_text("")

    text = world.scrape()

    assert by(series(text, "hami_dra_monitor_source_up"), "source")["claims"] == 0
    assert len(series(text, "hami_gpu_memory_limit_bytes")) == 3
    shown = {line.partition("{")[0].partition(" ")[0] for line in text.splitlines()}
    assert not shown & {
        "hami_gpu_memory_allocated_bytes",
        "hami_gpu_core_allocated_ratio",
        "hami_gpu_shared_count",
        "hami_node_gpu_overview",
        "hami_node_gpu_memory_allocated_ratio",
        "hami_dra_monitor_claims",
        "hami_dra_monitor_unnamed_claims",
        "hami_dra_monitor_left_out_claims",
    }


def test_counts_do_not_begin_anew_when_the_directory_cannot_be_listed_for_a_while(
    world: World,
) -> None:
    """Of a process that has ended nobody else knows them."""
    made, name = world.pod("pod", result(0)), "hami_dra_monitor_container_refusals_total"
    world.use(made, 0, [0] * 7 + [5])
    assert by(world.series(name), "pod") == {"pod": 5}
    world.use(made, 0, [0] * 7 + [2], pid=30)
    assert by(world.series(name), "pod") == {"pod": 7}
    claims, elsewhere = world.disk.directories.claims, world.disk.root / "elsewhere"
    claims.rename(elsewhere)
    claims.write_text("")
    assert world.series(name) == {}

    claims.unlink()
    elsewhere.rename(claims)

    assert by(world.series(name), "pod") == {"pod": 7}


def test_claims_beyond_the_bound_are_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST", 2)
    for number in range(3):
        world.pod(f"pod-{number}", result(number))

    text = world.scrape()

    assert series(text, "hami_dra_monitor_claims") == {frozenset(): 2}
    assert series(text, "hami_dra_monitor_left_out_claims") == {frozenset(): 1}
    assert len(series(text, "hami_vgpu_memory_used_bytes")) == 2


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.integers(),
    st.lists(st.tuples(st.integers(0, USAGE_BYTES - 9), st.binary(min_size=1, max_size=8))),
)
def test_whatever_a_container_writes_a_scrape_stays_readable_and_bounded(
    world: World, seed: int, pieces: list[tuple[int, bytes]]
) -> None:
    """Random pieces over books of ten processes, and all other series as they were."""
    if not world.kubelet.pods:
        world.pod("hostile", result(0), result(1))
        world.pod("other", result(2))
    hostile = next(each for each in world.agent.records().values() if each.name == "hostile-gpu")
    usage = world.disk.directories.claim(hostile.uid) / "usage"
    usage.write_bytes(bytes(USAGE_BYTES))
    for slot in range(10):
        write_slot(usage, slot, [slot * MIB] * 10, [MIB] * 10, pid=10 + slot)
    with usage.open("r+b") as file:
        for offset, piece in pieces:
            file.seek(offset)
            file.write(piece)
        if seed % 3 == 0:
            file.write(random.Random(seed).randbytes(4096))  # noqa: S311 - no secret

    text = world.scrape()

    used = by(series(text, "hami_vgpu_memory_used_bytes"), "pod", "vdevice_index")
    assert used["other", "0"] == 0
    assert set(used) <= {("other", "0"), ("hostile", "0"), ("hostile", "1")}
    assert all(0 <= value <= 256 * 6 * 2**50 for value in used.values())
    assert len(series(text, "hami_vgpu_memory_limit_bytes")) == 3


def test_control_is_read_whole_while_the_agent_writes(world: World) -> None:
    """Sequences are odd while numbers change; one that stays odd does not stop the reader."""
    made = world.pod("pod", result(0))
    path = world.folder(made) / "control"
    before = limit_files.read_control(path)
    with path.open("r+b") as file:
        file.seek(48)
        file.write((7).to_bytes(8, "little"))

    after = limit_files.read_control(path)

    assert after.devices == before.devices
    assert after.feed_sequence == 7
