"""One card that fails loses its own series (report 49); a driver that hangs stops nobody."""

import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hami_dra.monitor import cards
from hami_dra.monitor.cards import CardReading, CardsError, NvmlCards
from hami_dra.monitor.page import as_html
from hami_dra.monitor.settings import read
from hami_dra.node.backend import BackendError
from hami_dra.patience import HangsError, Patience
from tests.hami_dra.monitor.world import FakeCards, World, by, listening, series
from tests.hami_dra.node.claims import CARDS, result
from tests.hami_dra.node.fake_nvml import FakeCard, FakeNvml, pynvml

GIB = 2**30
FIRST, SECOND = (f"GPU-{digit * 8}-1111-1111-1111-111111111111" for digit in "12")


@pytest.fixture
def nvml() -> FakeNvml:
    return FakeNvml(
        [
            FakeCard(FIRST, 0x0A, 0, in_use=3 * GIB, busy=(40, 10)),
            FakeCard(SECOND, 0x0B, 1, in_use=GIB, busy=(5, 2)),
        ]
    )


@pytest.fixture
def node(nvml: FakeNvml, tmp_path: Path, short_path: Path) -> World:
    return World(tmp_path, short_path / "none.sock", NvmlCards(nvml))


def test_cards_say_what_they_do(node: World) -> None:
    text = node.scrape()

    used = by(series(text, "hami_host_gpu_memory_used_bytes"), "device_index", "device_uuid")
    assert used == {("0", FIRST): 3 * GIB, ("1", SECOND): GIB}
    assert by(series(text, "hami_host_gpu_utilization_ratio"), "device_uuid")[FIRST] == 40
    [labels, *_] = series(text, "hami_host_gpu_memory_controller_utilization_ratio")
    assert "node" not in dict(labels), "HAMi has none there"
    types = {
        dict(labels)["device_type"] for labels in series(text, "hami_host_gpu_utilization_ratio")
    }
    assert types == {"NVIDIA-NVIDIA A100-SXM4-80GB"}, "HAMi's monitor always adds NVIDIA-"
    registered = {dict(each)["device_type"] for each in series(text, "hami_gpu_shared_count")}
    assert registered == {"NVIDIA A100-SXM4-80GB"}, "and its scheduler does not"


@pytest.mark.parametrize("what", ["memory", "utilization"])
def test_a_number_that_fails_is_left_out_alone(node: World, nvml: FakeNvml, what: str) -> None:
    node.scrape()
    nvml.found[0].refuses[what] = pynvml.NVML_ERROR_UNKNOWN

    text = node.scrape()

    memory = by(series(text, "hami_host_gpu_memory_used_bytes"), "device_uuid")
    busy = by(series(text, "hami_host_gpu_utilization_ratio"), "device_uuid")
    assert set(memory) == ({SECOND} if what == "memory" else {FIRST, SECOND})
    assert set(busy) == ({SECOND} if what == "utilization" else {FIRST, SECOND})
    errors = by(series(text, "hami_dra_monitor_errors_total"), "source", "device_uuid")
    assert errors[what, FIRST] == 1
    assert sum(errors.values()) == 3, "and two looks without a kubelet"


def test_what_a_card_does_not_offer_is_no_error(node: World, nvml: FakeNvml) -> None:
    nvml.found[0].refuses["utilization"] = pynvml.NVML_ERROR_NOT_SUPPORTED

    text = node.scrape()

    assert set(by(series(text, "hami_host_gpu_utilization_ratio"), "device_uuid")) == {SECOND}
    sources = by(series(text, "hami_dra_monitor_errors_total"), "source")
    assert "utilization" not in sources


def test_a_partitioned_card_offers_nothing(node: World, nvml: FakeNvml) -> None:
    """The agent does not share it out, so nothing of it can be given away; it is in use even so."""
    nvml.found[0].mig = pynvml.NVML_DEVICE_MIG_ENABLE
    nvml.found[0].refuses["utilization"] = pynvml.NVML_ERROR_NOT_SUPPORTED

    text = node.scrape()

    assert set(by(series(text, "hami_host_gpu_memory_used_bytes"), "device_uuid")) == {
        FIRST,
        SECOND,
    }
    for name in (
        "hami_gpu_memory_limit_bytes",
        "hami_gpu_core_limit_ratio",
        "hami_gpu_memory_allocated_bytes",
        "hami_gpu_core_allocated_ratio",
        "hami_gpu_shared_count",
        "hami_node_gpu_overview",
        "hami_node_gpu_memory_allocated_ratio",
    ):
        assert set(by(series(text, name), "device_uuid")) == {SECOND}, name
    said = as_html(node.looker.look(), {}, datetime.now(UTC))
    assert said.count("partitioned, not shared out") == 1


def test_a_lost_card_keeps_its_name_and_what_is_given_away(node: World, nvml: FakeNvml) -> None:
    node.scrape()
    nvml.found[0].is_lost = True

    text = node.scrape()

    assert set(by(series(text, "hami_host_gpu_memory_used_bytes"), "device_uuid")) == {SECOND}
    assert set(by(series(text, "hami_gpu_shared_count"), "device_uuid")) == {FIRST, SECOND}
    errors = by(series(text, "hami_dra_monitor_errors_total"), "source", "device_uuid")
    assert errors["card", FIRST] == 1


def test_a_card_that_was_lost_before_we_came_hides_no_other(node: World, nvml: FakeNvml) -> None:
    nvml.found[0].is_lost = True

    text = node.scrape()

    assert set(by(series(text, "hami_gpu_shared_count"), "device_uuid")) == {SECOND}
    errors = by(series(text, "hami_dra_monitor_errors_total"), "source", "device_uuid")
    assert errors["card", ""] == 1


def test_cards_are_numbered_as_ever_while_nobody_can_ask_for_them(
    tmp_path: Path, short_path: Path
) -> None:
    """A monitor that starts beside a driver that is away, or a card that is lost."""
    cards = FakeCards([], failure=CardsError("no driver"))
    node = World(tmp_path, short_path / "kubelet.sock", cards)
    node.pod("pod", result(2), result(1), result(0))

    with listening(node.kubelet, node.socket):
        found = by(node.series("hami_vgpu_memory_limit_bytes"), "vdevice_index", "device_uuid")

    assert set(found) == {(str(number), card.uuid) for number, card in enumerate(CARDS)}


def test_a_driver_that_goes_leaves_names_and_comes_back(node: World, nvml: FakeNvml) -> None:
    node.scrape()
    nvml.broken = pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

    text = node.scrape()

    assert series(text, "hami_host_gpu_memory_used_bytes") == {}
    assert set(by(series(text, "hami_gpu_shared_count"), "device_uuid")) == {FIRST, SECOND}
    assert by(series(text, "hami_dra_monitor_source_up"), "source")["cards"] == 0

    nvml.broken = None
    assert len(node.series("hami_host_gpu_memory_used_bytes")) == 2
    assert nvml.opened == 2, "NVML is opened anew"


def test_a_driver_that_hangs_is_waited_for_once() -> None:
    release, calls = threading.Event(), []

    def hang() -> Sequence[CardReading]:
        calls.append(1)
        release.wait()
        return [CardReading(FIRST, 0, "L4")]

    patient = Patience(hang, timeout_s=0.01)
    for _ in range(3):
        with pytest.raises(HangsError, match=r"no answer within 0\.01 s"):
            patient.ask()
    assert len(calls) == 1
    release.set()
    patient = Patience(hang, timeout_s=60)
    assert [card.uuid for card in patient.ask()] == [FIRST]


def test_whoever_is_waited_for_may_fail() -> None:
    failing = FakeCards([], failure=CardsError("no driver"))

    for _ in range(2):
        with pytest.raises(CardsError, match="no driver"):
            Patience(failing.read, timeout_s=60).ask()


def test_the_agents_settings_choose_the_cards(tmp_path: Path) -> None:
    """One ConfigMap tells both; the monitor's own variables win."""
    agents = {
        "HAMI_DRA_NODE_NAME": "n1",
        "HAMI_DRA_NODE_DEVICES": "simulated",
        "HAMI_DRA_NODE_PROFILE": "l4-24g",
        "HAMI_DRA_NODE_COUNT": "2",
        "HAMI_DRA_NODE_LOG_LEVEL": "of the agent alone",
        "HAMI_DRA_NODE_CORE_POLICY": "of the agent alone",
    }

    chosen = cards.choose(read(agents, {}), root=tmp_path)

    assert [(card.index, card.model) for card in chosen.read()] == [
        (0, "NVIDIA L4"),
        (1, "NVIDIA L4"),
    ]
    assert all(card.is_simulated for card in chosen.read())
    ours = read({**agents, "HAMI_DRA_MONITOR_PROFILE": "h100-80g"}, {"count": "1"})
    [card] = cards.choose(ours, root=tmp_path).read()
    assert card.model == "NVIDIA H100 80GB HBM3"


def test_a_node_without_a_driver_has_no_cards(tmp_path: Path) -> None:
    assert cards.choose(read({"HAMI_DRA_MONITOR_NAME": "n1"}, {}), root=tmp_path).read() == ()


def test_a_driver_that_comes_later_is_found(tmp_path: Path, nvml: FakeNvml) -> None:
    """Pods of the node may install it; until the monitor is restarted is too long to wait."""
    chosen = cards.Whichever(tmp_path, nvml)
    assert chosen.read() == ()
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidiactl").touch()

    nvml.broken = pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    with pytest.raises(CardsError, match="NVML does not answer"):
        chosen.read()
    nvml.broken = None

    assert [card.uuid for card in chosen.read()] == [FIRST, SECOND]


def test_simulated_cards_are_refused_beside_real_ones(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidiactl").touch()
    settings = read({"HAMI_DRA_MONITOR_NAME": "n1"}, {"devices": "simulated"})

    with pytest.raises(BackendError, match="has real NVIDIA cards"):
        cards.choose(settings, root=tmp_path)
