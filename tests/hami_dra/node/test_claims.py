"""The claim machine: the same answer twice, nothing left behind, and no way to die that harms."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hami_dra.lab.wait import until
from hami_dra.migration import Json
from hami_dra.node import cdi
from hami_dra.node.allocation import PrepareError
from hami_dra.node.books import Books
from hami_dra.node.checkpoint import NAME, PREVIOUS, Content, NewerFormatError, decode, encode
from hami_dra.node.claims import Claims
from hami_dra.node.files import no_step, read
from hami_dra.node.limits import decode_control
from hami_dra.node.prepare import Node
from hami_dra.node.record import State
from hami_dra.node.turns import SecondAgentError, claim_for_life
from hami_dra.node.work import Done, Work, value
from tests.hami_dra.node.cdi_validator import validate_all
from tests.hami_dra.node.claims import CARDS, DEVICES, DRIVER, NODE, Disk, claim, result
from tests.hami_dra.node.test_turns import openings
from tests.hami_dra.node.works import in_order


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def files_of(disk: Disk) -> dict[str, bytes]:
    return {
        str(path.relative_to(disk.root)): path.read_bytes()
        for directory in (disk.directories.cdi, disk.directories.claims)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def check(disk: Disk, claims: Claims) -> None:
    """Check what must hold whenever no call is in progress."""
    records = claims.records()
    expected = {cdi.file_name(uid) for uid in records} | set(records)
    assert disk.names() == expected, "files and records are of the same claims"
    validate_all(disk.directories.cdi)
    for uuid, holding in Books(records.values()).holdings().items():
        card = disk.host.found.cards[uuid]
        assert holding.amounts.memory_mib <= card.memory_mib
        assert holding.amounts.cores <= 100
        assert holding.amounts.slots <= 100


def test_a_prepared_claim_has_its_limits_and_its_device(disk: Disk) -> None:
    claims = disk.start()
    wanted = claim(result(1), result(0, memory="8Gi", cores="0"))
    uid = wanted["metadata"]["uid"]

    shares = claims.prepare(wanted)

    assert len(shares) == 2
    check(disk, claims)
    control = decode_control((disk.directories.claim(uid) / "control").read_bytes())
    assert [(each.uuid, each.memory_bytes, each.core_percent) for each in control.devices] == [
        (CARDS[0].uuid, 8 * 2**30, 0),
        (CARDS[1].uuid, 4 * 2**30, 30),
    ]


def test_prepare_and_unprepare_are_idempotent(disk: Disk) -> None:
    claims = disk.start()
    wanted = claim(result())
    uid = wanted["metadata"]["uid"]

    first = claims.prepare(wanted)
    before = files_of(disk)
    assert claims.prepare(wanted) == first == claims.repeat(uid)
    assert files_of(disk) == before
    for _ in range(2):
        claims.unprepare(uid)
        assert disk.names() == set()
    assert claims.repeat(uid) is None


def test_the_runtime_never_finds_a_claim_without_its_files(disk: Disk) -> None:
    """They come before the file that names them, and go after it."""
    wanted = claim(result())
    uid = wanted["metadata"]["uid"]
    spec, folder = disk.directories.spec(uid), disk.directories.claim(uid)
    seen: set[bool] = set()

    def step(_: str) -> None:
        seen.add(spec.exists())
        if spec.exists():
            assert {"control", "usage"} <= {path.name for path in folder.iterdir()}

    claims = disk.start(step)
    claims.prepare(wanted)
    claims.unprepare(uid)

    assert seen == {True, False}


def test_a_claim_without_cards_of_ours_leaves_no_trace(disk: Disk) -> None:
    claims = disk.start()

    assert claims.prepare(claim(result() | {"driver": "nic.example.com"})) == ()
    assert claims.records() == {}
    assert disk.names() == set()


@pytest.mark.parametrize("lost", ["cdi", "control", "usage", "cut usage", "changed cdi"])
def test_a_repeated_prepare_mends_its_files(disk: Disk, lost: str) -> None:
    claims = disk.start()
    wanted = claim(result())
    uid = wanted["metadata"]["uid"]
    shares = claims.prepare(wanted)
    spec, folder = disk.directories.spec(uid), disk.directories.claim(uid)
    fresh = files_of(disk)
    with (folder / "usage").open("r+b") as usage:
        usage.write(b"books of a container that runs")
    before = files_of(disk)
    harm: dict[str, Callable[[], object]] = {
        "cdi": spec.unlink,
        "control": (folder / "control").unlink,
        "usage": (folder / "usage").unlink,
        "cut usage": lambda: os.truncate(folder / "usage", 7),
        "changed cdi": lambda: spec.write_text("{}"),
    }
    harm[lost]()

    assert claims.repeat(uid) == shares
    assert files_of(disk) == (fresh if "usage" in lost else before)


@pytest.mark.parametrize("lost", ["cdi", "claims", "both"])
def test_directories_that_somebody_removes_are_made_anew(disk: Disk, lost: str) -> None:
    claims = disk.start()
    before = claim(result())
    claims.prepare(before)
    for name in ("cdi", "claims") if lost == "both" else (lost,):
        shutil.rmtree(disk.root / name)

    after = claim(result(1), name="after")
    assert claims.prepare(after)
    assert claims.repeat(before["metadata"]["uid"])
    check(disk, claims)
    for each in (before, after):
        claims.unprepare(each["metadata"]["uid"])
    assert disk.names() == set()


def test_a_new_allocation_under_the_same_uid_replaces_the_old_one(disk: Disk) -> None:
    claims = disk.start()
    uid = "11111111-2222-3333-4444-555555555555"
    claims.prepare(claim(result(0), uid=uid))

    claims.prepare(claim(result(1, memory="1Gi"), uid=uid))

    control = decode_control((disk.directories.claim(uid) / "control").read_bytes())
    assert [each.uuid for each in control.devices] == [CARDS[1].uuid]
    check(disk, claims)


def test_over_commit_is_refused_and_the_room_is_free_again_after_unprepare(disk: Disk) -> None:
    claims = disk.start()
    first, second = claim(result(cores="70")), claim(result(cores="70"), name="late")
    claims.prepare(first)

    with pytest.raises(PrepareError, match="held by ns/c"):
        claims.prepare(second)
    check(disk, claims)
    claims.unprepare(first["metadata"]["uid"])

    assert claims.prepare(second)


def test_an_agent_that_starts_again_knows_everything(disk: Disk) -> None:
    wanted = claim(result())
    shares = disk.start().prepare(wanted)

    claims = disk.start()

    assert claims.repeat(wanted["metadata"]["uid"]) == shares
    check(disk, claims)


def test_after_a_reboot_amounts_count_and_files_are_made_anew(disk: Disk) -> None:
    wanted = claim(result(cores="70"))
    uid = wanted["metadata"]["uid"]
    shares = disk.start().prepare(wanted)
    for directory in (disk.directories.cdi, disk.directories.claims):
        shutil.rmtree(directory)
        directory.mkdir()
    disk.boot_id = "boot-2"

    claims, recovery = disk.recovered()

    assert recovery.is_new_boot
    assert claims.repeat(uid) is None
    with pytest.raises(PrepareError):
        claims.prepare(claim(result(cores="70")))
    assert claims.prepare(wanted) == shares
    check(disk, claims)


def harm_nothing(path: Path) -> None:
    assert path.exists()


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("harm", [cut, empty, flip, remove])
@pytest.mark.parametrize("both", [False, True])
def test_a_damaged_checkpoint_costs_nothing(
    disk: Disk,
    harm: Callable[[Path], None],
    both: bool,  # noqa: FBT001 - a parameter
) -> None:
    first, second = claim(result()), claim(result(1), name="second")
    running = disk.start()
    running.prepare(first)
    running.prepare(second)
    harmed = (NAME, PREVIOUS)[: 2 if both else 1]
    for name in harmed:
        harm(disk.state / name)
    kept = {f"{name}.damaged": read(disk.state / name) for name in harmed if harm is not remove}

    claims, recovery = disk.recovered()

    assert {path.name: path.read_bytes() for path in disk.state.glob("*.damaged")} == kept
    assert {record.state for record in claims.records().values()} == {State.PREPARED}
    assert claims.records().keys() == {each["metadata"]["uid"] for each in (first, second)}
    assert bool(recovery.troubles) == (harm is not remove)
    check(disk, claims)
    for each in (first, second):
        claims.unprepare(each["metadata"]["uid"])
    check(disk, disk.start())


def test_a_checkpoint_from_the_future_is_neither_used_nor_replaced(disk: Disk) -> None:
    disk.start().prepare(claim(result()))
    path = disk.state / NAME
    path.write_bytes(b"hami-dra-checkpoint 2 " + path.read_bytes().partition(b" 1 ")[2])
    before = path.read_bytes()

    with pytest.raises(NewerFormatError, match="format 2, expected at most 1"):
        disk.start()
    assert path.read_bytes() == before


def test_what_a_newer_release_added_to_this_format_is_kept(disk: Disk) -> None:
    claims = disk.start()
    claims.prepare(claim(result()))
    found = decode((disk.state / NAME).read_bytes())
    strange = {"from-the-future": {"state": "resizing"}}
    newer = Content(found.boot_id, found.records, {"zone": "a"}, strange)
    (disk.state / NAME).write_bytes(encode(newer))

    disk.start().prepare(claim(result(1)))

    kept = decode((disk.state / NAME).read_bytes())
    assert kept.unknown == {"zone": "a"}
    assert kept.unreadable == strange


def test_what_a_newer_agent_beside_us_adds_is_kept(disk: Disk) -> None:
    claims = disk.start()
    claims.prepare(claim(result()))
    found = decode((disk.state / NAME).read_bytes())
    (disk.state / NAME).write_bytes(encode(replace(found, unknown={"zone": "a"})))

    claims.prepare(claim(result(1)))

    kept = decode((disk.state / NAME).read_bytes())
    assert kept.unknown == {"zone": "a"}
    assert len(kept.records) == 2


def test_a_full_disk_refuses_and_leaves_nothing(disk: Disk) -> None:
    wanted = claim(result())
    steps = count_steps(disk, wanted)
    for number in range(steps):
        remaining = [number]

        def fail(_: str, left: list[int] = remaining) -> None:
            left[0] -= 1
            if left[0] == -1:
                raise OSError(28, "No space left on device")

        claims = disk.start()
        claims._files._files.step = claims._checkpoint._files.step = fail  # noqa: SLF001
        with pytest.raises(PrepareError, match="No space left"):
            claims.prepare(wanted)
        assert disk.names() == set()
        assert claims.records() == {}
        check(disk, disk.start())


def test_on_a_full_disk_claims_can_end(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods that have to go are what makes room, and they wait for it."""
    wanted = small_claims(disk, 64)
    claims = disk.start()
    for each in wanted[:40]:
        claims.prepare(each)
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        if os.fstat(descriptor).st_blocks * 512 < len(data):
            raise OSError(28, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    for done in at_once(claims, [claims.preparing(each) for each in wanted[40:]]):
        assert "No space left" in str(done)

    for each in wanted[:40]:
        claims.unprepare(each["metadata"]["uid"])

    assert disk.names() == set()
    assert disk.start().records() == {}


def test_an_unprepare_that_could_not_be_written_down_is_done_again(disk: Disk) -> None:
    claims = disk.start()
    wanted = claim(result())
    uid = wanted["metadata"]["uid"]
    claims.prepare(wanted)

    def full(what: str) -> None:
        if what == f"write {NAME}":
            raise OSError(28, "No space left on device")

    claims._checkpoint._files.step = full  # noqa: SLF001
    with pytest.raises(OSError, match="No space left"):
        claims.unprepare(uid)
    claims._checkpoint._files.step = no_step  # noqa: SLF001
    claims.unprepare(uid)

    assert disk.start().records() == {}
    assert disk.names() == set()


class KilledError(BaseException):
    """The process ended here."""


def count_steps(disk: Disk, wanted: Json) -> int:
    """Return how many changes of the disk a prepare makes, and unprepare."""
    steps: list[str] = []
    claims = disk.start(steps.append)
    steps.clear()
    claims.prepare(wanted)
    made = len(steps)
    claims.unprepare(wanted["metadata"]["uid"])
    return made


def cycle(claims: Claims, wanted: Json) -> None:
    claims.prepare(wanted)
    claims.unprepare(wanted["metadata"]["uid"])
    claims.prepare(wanted)


def killer(number: int) -> Callable[[str], None]:
    left = iter(range(number))

    def step(_: str) -> None:
        if next(left, None) is None:
            raise KilledError

    return step


def test_a_process_that_ends_at_any_change_of_the_disk_leaves_a_state_that_works(
    tmp_path: Path,
) -> None:
    counted: list[str] = []
    neighbour, wanted = claim(result(2), name="neighbour"), claim(result(), result(1))
    uid = wanted["metadata"]["uid"]
    first = Disk(tmp_path / "count")
    first.start().prepare(neighbour)
    cycle(first.start(counted.append), wanted)

    for number in range(len(counted)):
        for follow in ("prepare", "unprepare"):
            disk = Disk(tmp_path / f"{number}-{follow}")
            disk.start().prepare(neighbour)
            with pytest.raises(KilledError):
                cycle(disk.start(killer(number)), wanted)
            claims = disk.start()
            if follow == "prepare":
                shares = claims.repeat(uid) or claims.prepare(wanted)
                assert claims.repeat(uid) == claims.prepare(wanted) == shares
            else:
                claims.unprepare(uid)
                assert claims.records().keys() == {neighbour["metadata"]["uid"]}
            check(disk, claims)
            check(disk, disk.start())


def test_a_process_that_is_killed_for_real_leaves_a_state_that_works(tmp_path: Path) -> None:
    wanted = claim(result())
    for number in range(0, 2 * count_steps(Disk(tmp_path / "count"), wanted), 3):
        disk = Disk(tmp_path / str(number))
        ended = subprocess.run(
            [sys.executable, "-m", "tests.hami_dra.node.killed", str(disk.root), str(number)],
            input=json.dumps(wanted),
            text=True,
            check=False,
        )
        assert ended.returncode == -signal.SIGKILL
        claims = disk.start()
        assert claims.repeat(wanted["metadata"]["uid"]) or claims.prepare(wanted)
        check(disk, claims)
        claims.unprepare(wanted["metadata"]["uid"])
        assert disk.names() == set()


@pytest.mark.parametrize("part", range(10))
def test_random_histories_agree_with_a_model(tmp_path: Path, part: int) -> None:
    for seed in range(part * 100, part * 100 + 100):
        disk = Disk(tmp_path / str(seed))
        History(disk, random.Random(seed)).play()  # noqa: S311 - a history, no secret
        shutil.rmtree(disk.root)


class History:
    """Random calls and deaths, beside a model that only adds up."""

    def __init__(self, disk: Disk, chance: random.Random) -> None:
        self.disk = disk
        self.chance = chance
        self.wanted = [self.random_claim(number) for number in range(4)]
        self.model: set[int] = set()
        self.claims = disk.start()

    def random_claim(self, number: int) -> Json:
        """Make up a claim."""
        chance = self.chance
        shares = [
            (chance.randrange(2), chance.randint(1, 60), chance.randint(0, 60))
            for _ in range(chance.randint(1, 2))
        ]
        results = (
            result(card, memory=f"{memory}Gi", cores=str(cores)) for card, memory, cores in shares
        )
        return claim(*results, name=f"c{number}")

    def play(self) -> None:
        """Do eight things and compare after each."""
        actions = (self.prepare, self.prepare, self.unprepare, self.restart, self.crash)
        for _ in range(8):
            self.chance.choice(actions)(self.chance.randrange(4))
            uids = {self.wanted[each]["metadata"]["uid"] for each in self.model}
            assert self.claims.records().keys() == uids
            check(self.disk, self.claims)

    def prepare(self, number: int) -> None:
        """Prepare a claim, which must be refused exactly when it does not fit."""
        try:
            self.claims.prepare(self.wanted[number])
        except PrepareError:
            assert not fits(self.model | {number}, self.wanted)
        else:
            self.model.add(number)

    def unprepare(self, number: int) -> None:
        """Unprepare a claim, known or not."""
        self.claims.unprepare(self.wanted[number]["metadata"]["uid"])
        self.model.discard(number)

    def restart(self, _: int) -> None:
        """Start the agent anew."""
        self.claims = self.disk.start()

    def crash(self, number: int) -> None:
        """Die somewhere in an unprepare, or just after it, and unprepare again."""
        with contextlib.suppress(KilledError):
            dying = self.disk.start(killer(self.chance.randrange(12)))
            dying.unprepare(self.wanted[number]["metadata"]["uid"])
        self.claims = self.disk.start()
        self.unprepare(number)


def fits(numbers: set[int], wanted: list[Json]) -> bool:
    totals: dict[str, list[int]] = {}
    for number in numbers:
        for each in wanted[number]["status"]["allocation"]["devices"]["results"]:
            consumed = each["consumedCapacity"]
            total = totals.setdefault(each["device"], [0, 0])
            total[0] += int(consumed["memory"].removesuffix("Gi"))
            total[1] += int(consumed["cores"])
    return all(memory <= 80 and cores <= 100 for memory, cores in totals.values())


def small_claims(disk: Disk, count: int) -> list[Json]:
    """Make a node that many fit on, and that many claims."""
    disk.host.found = Node(NODE, DRIVER, {card.uuid: card for card in CARDS}, split_count=100)
    return [
        claim(result(number % 3, memory="1Mi", cores="0", slots="1"), name=f"c{number}")
        for number in range(count)
    ]


def at_once(claims: Claims, works: Sequence[Work[Any]]) -> list[Done]:
    """Have works done side by side and return how each ended."""
    return in_order(claims.together, works)


def test_claims_that_come_together_share_the_writes_of_the_checkpoint(disk: Disk) -> None:
    steps: list[str] = []
    wanted = small_claims(disk, 30)
    claims = disk.start(steps.append)
    steps.clear()

    done = at_once(claims, [claims.preparing(each) for each in wanted])

    assert all(value(each) for each in done)
    assert steps.count(f"write {NAME}") == 2
    assert len(disk.start().records()) == 30
    check(disk, claims)


def test_one_of_many_that_is_refused_hurts_none_of_the_others(disk: Disk) -> None:
    claims = disk.start()
    first, big, last = (
        claim(result(0)),
        claim(result(1, memory="81Gi"), name="big"),
        claim(result(2), name="last"),
    )

    done = at_once(claims, [claims.preparing(each) for each in (first, big, last)])

    assert [isinstance(each, PrepareError) for each in done] == [False, True, False]
    assert len(claims.records()) == 2
    check(disk, claims)


@pytest.mark.parametrize("later", ["unprepare", "another allocation", "both"])
def test_whoever_comes_later_wins(disk: Disk, later: str) -> None:
    """A kubelet that has given up waiting unprepares, and its prepare must not come after that."""
    claims = disk.start()
    wanted = claim(result(0))
    uid = wanted["metadata"]["uid"]
    other = claim(result(1), uid=uid)
    works: dict[str, list[Work[Any]]] = {
        "unprepare": [claims.unpreparing(uid)],
        "another allocation": [claims.preparing(other)],
        "both": [claims.unpreparing(uid), claims.preparing(other)],
    }

    first, *others = at_once(claims, [claims.preparing(wanted), *works[later]])

    assert "while it was prepared" in str(first)
    assert not any(isinstance(each, Exception) for each in others)
    held = {share.device for record in claims.records().values() for share in record.shares}
    assert held == (set() if later == "unprepare" else {DEVICES[1]})
    check(disk, claims)
    check(disk, disk.start())


def test_a_process_that_ends_while_it_does_many_leaves_a_state_that_works(tmp_path: Path) -> None:
    counted: list[str] = []
    first = Disk(tmp_path / "count")
    wanted = small_claims(first, 3)
    uids = [each["metadata"]["uid"] for each in wanted]
    both(first.start(counted.append), wanted)

    for number in range(len(counted)):
        disk = Disk(tmp_path / str(number), host=first.host)
        with pytest.raises(KilledError):
            both(disk.start(killer(number)), wanted)
        claims = disk.start()
        for each, uid in zip(wanted, uids, strict=True):
            assert claims.prepare(each) == claims.repeat(uid)
        check(disk, claims)


def both(claims: Claims, wanted: list[Json]) -> None:
    """Prepare all, then let go of the first and take the others again."""
    at_once(claims, [claims.preparing(each) for each in wanted])
    first, *others = wanted
    at_once(
        claims,
        [
            claims.unpreparing(first["metadata"]["uid"]),
            *(claims.repeating(each["metadata"]["uid"]) for each in others),
            claims.preparing(first),
        ],
    )


def test_threads_take_turns_and_lose_nothing(disk: Disk) -> None:
    wanted = small_claims(disk, 64)
    claims = disk.start()
    threads = [
        threading.Thread(target=lambda part=part: [claims.prepare(each) for each in part])
        for part in (wanted[start::8] for start in range(8))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(disk.start().records()) == 64
    check(disk, claims)


def test_files_of_claims_that_nobody_knows_are_removed_and_those_of_others_stay(
    disk: Disk,
) -> None:
    claims = disk.start()
    wanted = claim(result())
    claims.prepare(wanted)
    (disk.directories.cdi / cdi.file_name("lost")).write_text("{}")
    for half_written in ("half", wanted["metadata"]["uid"]):
        (disk.directories.cdi / f".tmp-{cdi.file_name(half_written)}").write_text("{")
    (disk.directories.claims / "lost").mkdir()
    foreign = disk.directories.cdi / "nvidia.yaml"
    foreign.write_text("x: 1")

    removed = claims.remove_orphans()

    assert len(removed) == 4
    assert foreign.exists()
    foreign.unlink()
    check(disk, claims)


def test_a_file_that_nobody_can_remove_keeps_no_agent_from_its_work(disk: Disk) -> None:
    wanted = claim(result())
    disk.start().prepare(wanted)
    stuck = disk.directories.cdi / cdi.file_name("0-stuck")
    stuck.mkdir()
    (disk.directories.cdi / cdi.file_name("1-lost")).write_text("{}")

    claims = disk.start()

    assert claims.repeat(wanted["metadata"]["uid"])
    assert disk.names() - {wanted["metadata"]["uid"]} == {
        stuck.name,
        cdi.file_name(wanted["metadata"]["uid"]),
    }


def test_a_library_is_looked_after_with_what_the_other_agent_has_prepared(disk: Disk) -> None:
    """Its pods could not start without a version that this agent believes nobody has."""
    first, second = disk.start(), disk.start()
    disk.host.digest = "a" * 64
    first.prepare(claim(result()))

    assert second.with_libraries(set) == {"a" * 64}


def test_libraries_of_claims_that_cannot_be_read_are_left_alone(disk: Disk) -> None:
    claims = disk.start()
    claims.prepare(claim(result()))
    content = decode((disk.state / NAME).read_bytes())
    strange = replace(content, records={}, unreadable={"1-2": {"library": "b" * 64}})
    (disk.state / NAME).write_bytes(encode(strange))

    assert claims.with_libraries(set) is None


def test_a_claim_of_a_card_that_is_gone_can_only_be_unprepared(disk: Disk) -> None:
    wanted = claim(result(2))
    uid = wanted["metadata"]["uid"]
    disk.start().prepare(wanted)
    disk.host.found = Node(NODE, DRIVER, {CARDS[0].uuid: CARDS[0]})
    claims = disk.start()

    with pytest.raises(PrepareError, match="is not on this node any more"):
        claims.repeat(uid)
    with pytest.raises(PrepareError, match="is not on this node"):
        claims.prepare(wanted)
    claims.unprepare(uid)

    assert disk.names() == set()


def test_two_agents_of_one_node_know_what_the_other_did(disk: Disk) -> None:
    first, second = disk.start(), disk.start()
    wanted = claim(result(cores="70"))
    uid = wanted["metadata"]["uid"]
    shares = first.prepare(wanted)

    assert second.repeat(uid) == shares
    with pytest.raises(PrepareError, match="held by ns/c"):
        second.prepare(claim(result(cores="70"), name="other"))
    second.unprepare(uid)

    assert first.repeat(uid) is None
    other = claim(result(cores="70"), name="other")
    first.prepare(other)
    assert second.repeat(other["metadata"]["uid"])


def test_one_that_begins_while_another_works_knows_what_that_one_did(disk: Disk) -> None:
    """It would remove the files of a pod that starts just then, and forget what the pod holds."""
    wanted = claim(result())
    known: list[set[str]] = []
    newcomer = threading.Thread(target=lambda: known.append(set(disk.begun()[0].records())))

    def step(_: str) -> None:
        if newcomer.ident is None:
            newcomer.start()
            until(lambda: known or openings(disk.lock) == 2, what="the new one has begun")
            assert not known, "it waits"

    working = disk.start()
    working._checkpoint._files.step = step  # noqa: SLF001
    working.prepare(wanted)
    newcomer.join()

    assert known == [{wanted["metadata"]["uid"]}]
    check(disk, working)


@pytest.mark.parametrize("uid", ["", ".", "..", "../x", "a/b", "x" * 65, "a\0b"])
def test_a_uid_that_names_other_files_is_refused(disk: Disk, uid: str) -> None:
    claims = disk.start()
    kept = claim(result())
    claims.prepare(kept)

    with pytest.raises(PrepareError, match="expected letters, digits and dashes"):
        claims.unprepare(uid)
    with pytest.raises(PrepareError, match="expected letters, digits and dashes"):
        claims.prepare(claim(result(1)) | {"metadata": {"uid": uid}})
    check(disk, claims)


def test_a_checkpoint_that_somebody_removes_or_breaks_is_written_anew(disk: Disk) -> None:
    claims = disk.start()
    first, second = claim(result()), claim(result(1), name="second")
    claims.prepare(first)
    (disk.state / NAME).unlink()
    assert claims.repeat(first["metadata"]["uid"])

    claims.prepare(second)
    flip(disk.state / NAME)
    assert claims.repeat(first["metadata"]["uid"])
    claims.persist()

    assert len(disk.start().records()) == 2
    check(disk, claims)


def test_only_one_agent_works_where_one_was_promised(tmp_path: Path) -> None:
    first = claim_for_life(tmp_path / "lock")

    with pytest.raises(SecondAgentError, match="already has one"):
        claim_for_life(tmp_path / "lock")
    os.close(first)
    os.close(claim_for_life(tmp_path / "lock"))
