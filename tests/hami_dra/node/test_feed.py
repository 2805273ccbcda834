"""The native library hears what its processes did on the card, and of nobody else's."""

import asyncio
import os
import shutil
import struct
from pathlib import Path

import pytest

from hami_dra.lab.wait import until
from hami_dra.node import limit_files
from hami_dra.node.cdi import NodeEdits
from hami_dra.node.feed import Fed, Feeder, keep_feeding
from hami_dra.node.limits import PROCESS_GONE, Control, DeviceLimit, DriverUsage, decode_control
from hami_dra.node.meter import Meter
from hami_dra.node.nvml import NvmlCards
from tests.hami_dra.node.fake_nvml import FakeCard, FakeNvml, pynvml

UUID = "GPU-11111111-1111-1111-1111-111111111111"
CONTROL = Control((DeviceLimit(UUID, 1 << 30, core_percent=30),))
HOST_PID, INNER_PID, START = 4711, 12, 987654
_HEADER = struct.Struct("<8sIIQII96x")
_SLOT = struct.Struct("<IIIIQQ96x")


@pytest.fixture
def card() -> FakeCard:
    return FakeCard(UUID, 0x0A, 0, used={HOST_PID: 300 << 20, 5: 1})


@pytest.fixture
def cards(card: FakeCard, tmp_path: Path) -> NvmlCards:
    return NvmlCards(lambda _: NodeEdits(), root=tmp_path, library=FakeNvml([card]))


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Two processes of the node: one of a claim's container and a stranger of another one."""
    for pid, inner, name in ((HOST_PID, INNER_PID, "p (x) y"), (5, 5, "other")):
        home = tmp_path / "proc" / str(pid)
        (home / "ns").mkdir(parents=True)
        (home / "ns/pid").touch()
        (home / "status").write_text(f"Name:\tx\nNSpid:\t{pid}\t{inner}\n")
        fields = ["S", *["0"] * 18, str(START), "0"]
        (home / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")
    return tmp_path / "proc"


@pytest.fixture
def claim(tmp_path: Path, proc: Path) -> Fed:
    """A claim with one process in slot 3, as the library writes it."""
    directory = tmp_path / "claim"
    directory.mkdir()
    limit_files.create(directory, CONTROL)
    namespace = (proc / str(HOST_PID) / "ns/pid").stat().st_ino
    size = _SLOT.size + 32 * 96
    with (directory / "usage").open("r+b") as usage:
        usage.write(_HEADER.pack(b"VGPUSAGE", 1, 1, 823424, 0, 0))
        usage.seek(128 + 32 * 128 + 3 * size)
        usage.write(_SLOT.pack(2, 1, INNER_PID, 0, START, namespace))
    return Fed(directory, CONTROL)


def hide(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Refuse to tell a process's namespace, which nobody refuses to root."""
    stat = os.stat

    def refusing(path: str | Path | int, *, follow_symlinks: bool = True) -> os.stat_result:
        if str(path) == str(home / "ns/pid"):
            raise PermissionError
        return stat(path, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(os, "stat", refusing)


def told(claim: Fed) -> Control:
    return decode_control((claim.directory / "control").read_bytes())


def test_busy_time_adds_up_from_the_first_look_on(
    card: FakeCard, cards: NvmlCards, proc: Path, claim: Fed
) -> None:
    clock = iter(range(1000, 2000))
    feeder = Feeder(cards.processes, proc=proc, clock_ns=lambda: next(clock))
    card.samples = [(1_000_000, HOST_PID, 90)]

    feeder.feed([claim])
    assert told(claim).devices[0].busy_ns == 0, "what was before anybody counted is nobody's"
    assert told(claim).measured_at_ns == 1000

    card.samples += [(1_200_000, HOST_PID, 50), (1_400_000, HOST_PID, 100), (1_400_000, 5, 100)]
    assert feeder.feed([claim])
    assert told(claim).devices[0].busy_ns == 100_000_000 + 200_000_000
    assert not feeder.feed([claim])
    assert told(claim).devices[0].busy_ns == 300_000_000, "it never goes back"
    assert told(claim).devices[0].core_percent == 30
    assert told(claim).generation == 0, "limits did not change"


def test_the_library_hears_its_processes_names_on_the_node_and_their_memory(
    cards: NvmlCards, proc: Path, claim: Fed
) -> None:
    Feeder(cards.processes, proc=proc).feed([claim])

    expected = DriverUsage(INNER_PID, HOST_PID, START, (300 << 20,))
    assert told(claim).processes == {3: expected}


def test_a_process_that_took_the_number_of_another_is_not_taken_for_it(
    cards: NvmlCards, proc: Path, claim: Fed
) -> None:
    stat = proc / str(HOST_PID) / "stat"
    stat.write_text(stat.read_text().replace(str(START), "1"))

    Feeder(cards.processes, proc=proc).feed([claim])

    assert told(claim).processes == {}


def test_a_process_that_may_not_be_looked_at_could_be_anybodys(
    cards: NvmlCards, proc: Path, claim: Fed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its card's claims measure by themselves: a time told as none would lift their limits."""
    hide(monkeypatch, proc / "5")
    Feeder(cards.processes, proc=proc).feed([claim])

    assert told(claim).measured_at_ns == 0


GONE = DriverUsage(INNER_PID, PROCESS_GONE, START, (0,))


def test_a_process_that_ended_is_told_once_and_frees_what_it_held(proc: Path, claim: Fed) -> None:
    """Its container was restarted, and has another namespace: the library cannot see it."""
    clock = iter(range(0, 100, 10))
    feeder = Feeder(None, proc=proc, now=lambda: next(clock))
    feeder.feed([claim])
    assert told(claim).processes == {}, "it lives"
    shutil.rmtree(proc / str(HOST_PID))

    feeder.feed([claim])
    after = told(claim)
    feeder.feed([claim])

    assert after.processes == {3: GONE}
    assert after.measured_at_ns == 0, "nobody measures: the library goes on by itself"
    assert told(claim) == after, "and nothing more is written about it"


def test_who_ended_is_told_beside_what_others_did(cards: NvmlCards, proc: Path, claim: Fed) -> None:
    shutil.rmtree(proc / str(HOST_PID))

    Feeder(cards.processes, proc=proc).feed([claim])

    assert told(claim).processes == {3: GONE}
    assert told(claim).measured_at_ns > 0


def test_who_ended_is_told_although_the_driver_does_not_answer(
    card: FakeCard, proc: Path, claim: Fed, tmp_path: Path
) -> None:
    silent = FakeNvml([card], broken=pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED))
    cards = NvmlCards(lambda _: NodeEdits(), root=tmp_path, library=silent)
    shutil.rmtree(proc / str(HOST_PID))

    Feeder(cards.processes, proc=proc).feed([claim])

    assert told(claim).processes == {3: GONE}


def test_a_process_whose_first_thread_ended_has_not_ended(proc: Path, claim: Fed) -> None:
    home = proc / str(HOST_PID)
    thread = home / "task" / "4712" / "ns"
    thread.mkdir(parents=True)
    (home / "ns/pid").rename(thread / "pid")

    Feeder(None, proc=proc).feed([claim])

    assert told(claim).processes == {}


@pytest.mark.parametrize(
    ("ids", "began", "could_be_it"),
    [
        (f"5\t{INNER_PID}", START, True),
        ("5\t13", START, False),
        (f"5\t{INNER_PID}", START + 1, False),
        (f"{INNER_PID}", START, False),
    ],
    ids=["the same", "another number", "another start", "of the node itself"],
)
def test_nobody_has_ended_who_may_be_one_that_hides(
    proc: Path,
    claim: Fed,
    monkeypatch: pytest.MonkeyPatch,
    ids: str,
    began: int,
    *,
    could_be_it: bool,
) -> None:
    hide(monkeypatch, proc / "5")
    (proc / "5" / "status").write_text(f"Name:\tx\nNSpid:\t{ids}\n")
    stat = proc / "5" / "stat"
    stat.write_text(stat.read_text().replace(str(START), str(began)))
    shutil.rmtree(proc / str(HOST_PID))

    Feeder(None, proc=proc).feed([claim])

    assert told(claim).processes == ({} if could_be_it else {3: GONE})


def test_a_container_that_names_no_namespace_names_nobody(proc: Path, claim: Fed) -> None:
    with (claim.directory / "usage").open("r+b") as usage:
        usage.seek(128 + 32 * 128 + 3 * (_SLOT.size + 32 * 96))
        usage.write(_SLOT.pack(2, 1, INNER_PID, 0, START, 0))
    shutil.rmtree(proc / str(HOST_PID))

    Feeder(None, proc=proc).feed([claim])

    assert told(claim).processes == {}


def test_where_the_driver_does_not_tell_nothing_is_said(
    card: FakeCard, proc: Path, claim: Fed, tmp_path: Path
) -> None:
    silent = FakeNvml([card], broken=pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED))
    feeder = Feeder(
        NvmlCards(lambda _: NodeEdits(), root=tmp_path, library=silent).processes, proc=proc
    )

    assert not feeder.feed([claim])
    assert "does not tell of processes" in feeder.problem
    assert told(claim).measured_at_ns == 0, "the library measures by itself"


def test_a_card_that_does_not_tell_takes_no_other_with_it(
    card: FakeCard, proc: Path, claim: Fed, tmp_path: Path
) -> None:
    lost = FakeCard("GPU-22222222-2222-2222-2222-222222222222", 0x0B, 1, is_lost=True)
    backend = NvmlCards(lambda _: NodeEdits(), root=tmp_path, library=FakeNvml([card, lost]))
    other = Fed(tmp_path / "other", Control((DeviceLimit(lost.uuid, 1 << 30, core_percent=30),)))
    shutil.copytree(claim.directory, other.directory)
    limit_files.create(other.directory, other.control)
    feeder = Feeder(backend.processes, proc=proc)

    feeder.feed([claim, other])

    assert told(claim).measured_at_ns > 0
    assert told(other).measured_at_ns == 0
    assert lost.uuid in feeder.problem
    lost.is_lost = False
    feeder.feed([claim, other])
    assert told(other).measured_at_ns > 0
    assert feeder.problem == ""


@pytest.mark.parametrize("driver", ["535.54.03", "470.256.02"])
def test_every_driver_tells_of_processes(
    card: FakeCard, proc: Path, claim: Fed, tmp_path: Path, driver: str
) -> None:
    nvml = FakeNvml([card], driver=driver)
    backend = NvmlCards(lambda _: NodeEdits(), root=tmp_path, library=nvml)

    Feeder(backend.processes, proc=proc).feed([claim])

    assert told(claim).processes[3].used_bytes == (300 << 20,)


def test_a_clock_that_is_set_back_lifts_no_limit(card: FakeCard, proc: Path, claim: Fed) -> None:
    """The driver dates its samples by that clock, and is asked for those after the last one."""
    clock = [7_200_000_000]
    meter = Meter(FakeNvml([card]), now_us=lambda: clock[0])
    feeder = Feeder(meter.measure, proc=proc)

    def passes(us: int) -> int:
        clock[0] += us
        card.samples.append((clock[0], HOST_PID, 50))
        feeder.feed([claim])
        return told(claim).devices[0].busy_ns

    passes(200_000)
    assert passes(200_000) == 100_000_000
    clock[0] -= 3_600_000_000
    feeder.feed([claim])

    assert passes(200_000) == 200_000_000
    assert passes(200_000) == 300_000_000


@pytest.mark.parametrize("percent", [101, 2**32 - 1])
def test_nobody_takes_more_than_a_whole_card(
    card: FakeCard, cards: NvmlCards, proc: Path, claim: Fed, percent: int
) -> None:
    feeder = Feeder(cards.processes, proc=proc)
    card.samples = [(1_000_000, HOST_PID, 0)]
    feeder.feed([claim])
    card.samples = [(1_200_000, HOST_PID, percent)]

    feeder.feed([claim])

    assert told(claim).devices[0].busy_ns == 200_000_000


def test_processes_that_hide_are_told_of_once(
    card: FakeCard,
    proc: Path,
    claim: Fed,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Jobs come and go all day, and the right is missing for all of them."""
    hide(monkeypatch, proc / "5")
    feeder = Feeder(Meter(FakeNvml([card])).measure, proc=proc)
    for used in ({HOST_PID: 1, 5: 1}, {HOST_PID: 1}, {HOST_PID: 1, 5: 1}):
        card.used = used
        feeder.feed([claim])

    assert caplog.text.count("SYS_PTRACE") == 1


def test_a_claim_whose_container_spoilt_its_books_hurts_no_other(
    cards: NvmlCards, proc: Path, claim: Fed, tmp_path: Path
) -> None:
    spoilt = tmp_path / "spoilt"
    spoilt.mkdir()
    limit_files.create(spoilt, CONTROL)
    os.truncate(spoilt / "usage", 5)

    Feeder(cards.processes, proc=proc).feed([Fed(spoilt, CONTROL), claim])

    assert told(claim).processes
    assert told(Fed(spoilt, CONTROL)).measured_at_ns == 0


async def test_one_agent_feeds_at_a_time(tmp_path: Path) -> None:
    """The library would take the difference of what two of them count for time of the card."""
    fed: dict[str, int] = {"old": 0, "new": 0}

    def feeding(name: str) -> asyncio.Task[None]:
        def claims() -> list[Fed]:
            fed[name] += 1
            return []

        return asyncio.create_task(keep_feeding(Feeder(None), claims, tmp_path / "lock"))

    async def until_fed(name: str, times: int) -> None:
        await asyncio.to_thread(until, lambda: fed[name] >= times, what=f"{name} feeds")

    old, new = feeding("old"), feeding("new")
    await until_fed("old", 3)
    assert fed["new"] == 0
    old.cancel()
    await until_fed("new", 1)
    new.cancel()
