"""NVIDIA's cards as NVML tells of them: what is published, what fails and what recovers."""

import asyncio
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from hami_dra.lab.wait import until
from hami_dra.migration import Json
from hami_dra.node.allocation import PrepareError
from hami_dra.node.backend import BackendError, FindEdits, NoCards
from hami_dra.node.cdi import NodeEdits
from hami_dra.node.choose import choose_backend, ending_for_a_driver, first_that_works
from hami_dra.node.devices import UNHEALTHY
from hami_dra.node.edits import from_host, from_toolkit, take_apart
from hami_dra.node.inventory import Card
from hami_dra.node.node_state import NodeState
from hami_dra.node.nvml import NvmlCards
from hami_dra.node.settings import CdiMode, Settings
from tests.hami_dra.node.fake_nvml import FakeCard, FakeNvml, pynvml

FIRST = "GPU-11111111-1111-1111-1111-111111111111"
SECOND = "GPU-22222222-2222-2222-2222-222222222222"


@pytest.fixture
def nvml() -> Iterator[FakeNvml]:
    fake = FakeNvml([FakeCard(SECOND, 0x3B, 0), FakeCard(FIRST, 0x0A, 1)])
    yield fake
    fake.events.put(None)


@pytest.fixture
def backend(nvml: FakeNvml, tmp_path: Path) -> NvmlCards:
    return NvmlCards(lambda _: NodeEdits(), root=tmp_path, library=nvml)


def test_cards_come_in_the_order_of_the_bus_with_all_that_is_published(
    backend: NvmlCards, tmp_path: Path
) -> None:
    device = tmp_path / "sys/devices/pci0000:00/0000:00:01.0/0000:0a:00.0"
    device.mkdir(parents=True)
    links = tmp_path / "sys/bus/pci/devices"
    links.mkdir(parents=True)
    (links / "0000:0a:00.0").symlink_to(device)

    first, second = backend.cards()

    assert (first.uuid, second.uuid) == (FIRST, SECOND)
    assert first.minor == 1
    assert first.product_name == "NVIDIA A100-SXM4-80GB"
    assert (first.brand, first.architecture) == ("Nvidia", "Ampere")
    assert (first.driver_version, first.cuda_driver_version) == ("535.54.03", "12.8")
    assert (first.compute_capability, first.memory_mib) == ("8.0", 81920)
    assert (first.pcie_bus_id, first.pcie_root) == ("0000:0a:00.0", "pci0000:00")
    assert second.pcie_root == "", "a VM may have none"


def test_a_partitioned_card_is_not_shared_out(backend: NvmlCards, nvml: FakeNvml) -> None:
    nvml.found[0].mig = pynvml.NVML_DEVICE_MIG_ENABLE

    assert [card.uuid for card in backend.cards()] == [FIRST]


def test_a_card_that_does_not_answer_takes_no_other_with_it(
    backend: NvmlCards, nvml: FakeNvml
) -> None:
    nvml.found[0].refuses["memory"] = pynvml.NVML_ERROR_UNKNOWN
    assert [card.uuid for card in backend.cards()] == [FIRST], "it has no name yet"

    nvml.found[0].refuses.clear()
    assert len(backend.cards()) == 2
    nvml.found[0].refuses["memory"] = pynvml.NVML_ERROR_UNKNOWN

    assert [card.uuid for card in backend.cards()] == [FIRST, SECOND], "who has it still has it"
    assert codes(backend) == {SECOND: "unreadable"}


def test_cards_of_which_none_answers_are_no_node_without_cards(
    backend: NvmlCards, nvml: FakeNvml
) -> None:
    for card in nvml.found:
        card.refuses["memory"] = pynvml.NVML_ERROR_UNKNOWN

    with pytest.raises(BackendError, match="NVML does not answer"):
        backend.cards()


def test_what_a_card_need_not_tell_is_left_empty(
    backend: NvmlCards, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: FakeCard) -> int:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(nvml, "nvmlDeviceGetArchitecture", refuse, raising=False)

    assert {card.architecture for card in backend.cards()} == {""}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "found no libnvidia-ml.so.1"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "is not loaded"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "as root"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "delete the agent's pod"),
        (pynvml.NVML_ERROR_UNKNOWN, "NVML does not answer"),
    ],
)
def test_what_keeps_nvml_from_answering_is_told_and_tried_again(
    backend: NvmlCards, nvml: FakeNvml, code: int, expected: str
) -> None:
    nvml.broken = type(pynvml.NVMLError(code))
    with pytest.raises(BackendError, match=expected):
        backend.cards()

    nvml.broken = None
    assert len(backend.cards()) == 2


def test_cards_stay_while_nvml_cannot_be_asked(backend: NvmlCards, nvml: FakeNvml) -> None:
    state = NodeState(backend, name="n", driver="d", split_count=10)
    state.refresh()
    nvml.broken = type(pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED))

    assert state.refresh(), "the problem is news"
    assert "is not loaded" in state.problem
    assert len(state.node().cards) == 2

    nvml.broken = None
    assert state.refresh()
    assert state.problem == ""


def codes(backend: NvmlCards) -> dict[str, str]:
    return {uuid: trouble.code for uuid, trouble in backend.troubles().items()}


@pytest.mark.parametrize(
    ("attribute", "code"), [("is_lost", "lost"), ("recovery_action", "needs-reset-1")]
)
def test_a_failed_card_recovers_after_two_good_looks(
    backend: NvmlCards, nvml: FakeNvml, attribute: str, code: str
) -> None:
    backend.cards()
    setattr(nvml.found[0], attribute, 1)
    assert codes(backend) == {SECOND: code}

    setattr(nvml.found[0], attribute, 0)
    assert codes(backend) == {SECOND: code}
    assert codes(backend) == {}


def test_a_driver_that_does_not_tell_recovery_actions_is_believed(
    backend: NvmlCards, nvml: FakeNvml
) -> None:
    nvml.found[0].no_recovery_field = True
    backend.cards()

    assert codes(backend) == {}


def test_a_reported_error_fails_the_card_and_an_applications_own_does_not(
    backend: NvmlCards, nvml: FakeNvml
) -> None:
    backend.cards()
    nvml.events.put((nvml.found[1], 31))
    nvml.events.put((nvml.found[0], 79))

    found = until(lambda: codes(backend) or None, what="the error arrived")

    assert found == {SECOND: "xid-79"}


def test_an_error_of_a_card_is_heard_whatever_the_others_report(
    backend: NvmlCards, nvml: FakeNvml
) -> None:
    """A card in a virtual machine may report none, and one that is lost answers nothing."""
    nvml.found.append(FakeCard("GPU-33333333-3333-3333-3333-333333333333", 0x01, 2))
    nvml.found[2].refuses["events"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    nvml.found[0].refuses["events"] = pynvml.NVML_ERROR_GPU_IS_LOST
    backend.cards()
    nvml.events.put((nvml.found[1], 79))

    assert until(lambda: codes(backend) or None, what="it was heard") == {FIRST: "xid-79"}


def test_an_error_of_a_card_that_came_later_is_heard(backend: NvmlCards, nvml: FakeNvml) -> None:
    backend.cards()
    late = FakeCard("GPU-33333333-3333-3333-3333-333333333333", 0x01, 2)
    nvml.found.append(late)
    backend.cards()
    nvml.events.put((late, 79))

    assert until(lambda: codes(backend) or None, what="it was heard") == {late.uuid: "xid-79"}


def test_cards_that_report_no_errors_are_asked_for_them_once(
    backend: NvmlCards, nvml: FakeNvml, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for card in nvml.found:
        card.refuses["events"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    backend.cards()
    until(lambda: nvml.made > 0 and not nvml.sets, what="it was tried and nothing is left behind")
    for _ in range(3):
        backend.cards()

    assert caplog.text.count("reports no errors") == 2
    assert nvml.made == 1


def test_nvml_is_not_shut_down_under_those_who_wait_in_it(
    backend: NvmlCards, nvml: FakeNvml
) -> None:
    backend.cards()
    until(lambda: nvml.waiting or None, what="somebody listens")
    nvml.broken = type(pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN))

    with pytest.raises(BackendError):
        backend.cards()

    assert (nvml.cut, nvml.sets) == (0, 0)


def test_a_card_that_is_lost_stays_when_another_one_is_partitioned(
    backend: NvmlCards, nvml: FakeNvml
) -> None:
    """Who has it still has it; the other one is not shared out any more."""
    backend.cards()
    nvml.found[1].mig = pynvml.NVML_DEVICE_MIG_ENABLE
    nvml.found[0].is_lost = True

    assert [card.uuid for card in backend.cards()] == [SECOND]


def refuse(_: object) -> NodeEdits:
    raise BackendError("the toolkit fails")


def test_a_card_fails_although_the_toolkit_fails_with_it(nvml: FakeNvml, tmp_path: Path) -> None:
    """A lost card is what makes the toolkit fail."""
    toolkit = [NodeEdits(common={"env": ["A=1"]})]
    backend = NvmlCards(
        lambda cards: toolkit[0] if toolkit else refuse(cards), root=tmp_path, library=nvml
    )
    state = NodeState(backend, name="n", driver="gpu.example.com", split_count=10)
    state.refresh()
    nvml.found[0].is_lost = True
    toolkit.clear()

    assert state.refresh()

    good, bad = state.slice("u")["spec"]["devices"]
    assert "taints" not in good
    assert bad["taints"][0]["value"] == "lost"
    assert state.problem == "the toolkit fails"
    assert state.edits().common == {"env": ["A=1"]}, "what worked for the others works on"


def test_cards_are_offered_only_when_containers_can_use_them(
    nvml: FakeNvml, tmp_path: Path
) -> None:
    backend = NvmlCards(refuse, root=tmp_path, library=nvml)
    state = NodeState(backend, name="n", driver="gpu.example.com", split_count=10)
    state.refresh()

    assert state.slice("u")["spec"]["devices"] == []
    assert len(state.node().cards) == 2, "who has one is told what is missing, not that it is gone"
    with pytest.raises(PrepareError, match="the toolkit fails"):
        state.edits()


@pytest.mark.parametrize("how", ["refuses", "hangs"])
def test_a_driver_that_does_not_answer_gets_no_new_pods(
    backend: NvmlCards, nvml: FakeNvml, how: str
) -> None:
    state = NodeState(backend, name="n", driver="gpu.example.com", split_count=10, hangs_s=0.1)
    nvml.found[0].recovery_action = 1
    until(lambda: state.refresh() and not state.problem, what="it answers at first")
    if how == "hangs":
        nvml.hangs.set()
    else:
        nvml.broken = type(pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED))

    assert state.refresh()

    assert state.problem
    assert [each["taints"][0]["value"] for each in state.slice("u")["spec"]["devices"]] == [
        "unreadable",
        "needs-reset-1",
    ]
    assert all(wrong for _, wrong in state.health())
    nvml.hangs.clear()
    nvml.broken = None
    until(lambda: state.refresh() and not state.problem, what="it answers again")
    assert [name for name, wrong in state.health() if not wrong]


def test_a_driver_that_hangs_from_the_start_keeps_nobody_waiting(
    backend: NvmlCards, nvml: FakeNvml
) -> None:
    """Pods of the node that have claims must be able to end all the same."""
    state = NodeState(backend, name="n", driver="gpu.example.com", split_count=10, hangs_s=0.1)
    nvml.hangs.set()

    assert state.refresh()

    assert "the driver hangs: no answer within 0.1 s" in state.problem
    assert state.slice("u")["spec"]["devices"] == []
    with pytest.raises(BackendError, match="the driver is busy"):
        backend.processes(FIRST)
    nvml.hangs.clear()
    until(lambda: state.refresh() and not state.problem, what="it answers")
    assert len(state.slice("u")["spec"]["devices"]) == 2


def test_a_failed_card_is_tainted_and_told_to_the_kubelet(
    backend: NvmlCards, nvml: FakeNvml
) -> None:
    state = NodeState(backend, name="n", driver="gpu.example.com", split_count=10)
    state.refresh()
    nvml.found[0].is_lost = True
    state.refresh()

    good, bad = state.slice("u")["spec"]["devices"]

    assert "taints" not in good
    assert bad["taints"] == [{"key": UNHEALTHY, "value": "lost", "effect": "NoSchedule"}]
    assert dict(state.health())[bad["name"]] == "the card has fallen off the bus; reboot the node"
    assert dict(state.health())[good["name"]] == ""
    [lost] = state.node().lost
    assert state.node().devices[bad["name"]].uuid == lost, "it is prepared for nobody"


def a_spec(**more: object) -> Json:
    """Build what NVIDIA's toolkit writes, fields of newer versions included."""
    return {
        "cdiVersion": "0.7.0",
        "kind": "nvidia.com/gpu",
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "additionalGids": [44],
            "deviceNodes": [{"path": "/dev/nvidiactl"}],
            "mounts": [{"hostPath": "/usr/lib/libcuda.so.535.54.03", "containerPath": "/x"}],
            "hooks": [{"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook"}],
        },
        "devices": [
            {"name": FIRST, "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia1"}]}},
            {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}},
            {"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}},
        ],
        **more,
    }


def a_device(name: str, minor: int) -> Json:
    """Build the part of a spec that is one card's."""
    return {"name": name, "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{minor}"}]}}


def test_a_spec_is_split_into_what_cards_share_and_what_each_needs(backend: NvmlCards) -> None:
    edits = take_apart(a_spec(), backend.cards(), "spec")

    assert "additionalGids" not in edits.common
    assert edits.common["hooks"][0]["path"] == "/usr/bin/nvidia-cdi-hook"
    assert edits.cards[FIRST] == {"deviceNodes": [{"path": "/dev/nvidia1"}]}
    assert edits.cards[SECOND] == {"deviceNodes": [{"path": "/dev/nvidia0"}]}, "by its device node"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ([], "is no CDI spec"),
        (a_spec(kind="vendor.com/gpu"), "is no CDI spec"),
        (a_spec(devices=[]), "does not name the cards"),
        (a_spec(devices=[{"name": FIRST}]), "does not name the cards"),
        (a_spec(devices=[{"name": FIRST}, a_device(SECOND, 0)]), f"give the cards {FIRST} the"),
        (a_spec(devices=[a_device(FIRST, 7), a_device(SECOND, 0)]), f"give the cards {FIRST} the"),
        (
            a_spec(devices=[a_device(FIRST, 0), a_device(SECOND, 1)]),
            f"{FIRST}, {SECOND} the device",
        ),
        (a_spec(devices=7), "another form"),
        (a_spec(containerEdits=[]) | {"containerEdits": "x"}, "another form"),
        (a_spec(containerEdits={"mounts": ["x"]}), "another form"),
        (a_spec(containerEdits={"env": 7}), "another form"),
        (a_spec(devices=[{"name": "0", "containerEdits": {"deviceNodes": ["x"]}}]), "another form"),
    ],
)
def test_a_spec_that_does_not_fit_is_refused(
    backend: NvmlCards, spec: object, expected: str
) -> None:
    with pytest.raises(BackendError, match=expected):
        take_apart(spec, backend.cards(), "spec")


def test_a_spec_of_the_host_is_read_and_a_stale_one_refused(
    backend: NvmlCards, tmp_path: Path
) -> None:
    with pytest.raises(BackendError, match="nvidia-ctk cdi generate --output"):
        from_host(backend.cards(), root=tmp_path)
    path = tmp_path / "etc/cdi/nvidia.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(a_spec()))
    assert from_host(backend.cards(), root=tmp_path).cards

    path.write_text(json.dumps(a_spec()).replace("535.54.03", "550.1.2"))
    with pytest.raises(BackendError, match="another driver"):
        from_host(backend.cards(), root=tmp_path)
    for strange in ("{", "a: 2026-99-99", "[" * 10_000):
        path.write_text(strange)
        with pytest.raises(BackendError, match="cannot be read"):
            from_host(backend.cards(), root=tmp_path)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("exit 1", "cdi generate failed"),
        ("echo no", "did not write JSON"),
        ("echo '{}'", "is no CDI spec"),
    ],
)
def test_a_toolkit_that_fails_is_told(
    backend: NvmlCards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, expected: str
) -> None:
    install(tmp_path, monkeypatch, script)

    with pytest.raises(BackendError, match=expected):
        from_toolkit(backend.cards())


def test_a_toolkit_that_fails_in_the_same_way_is_the_same_trouble(
    backend: NvmlCards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What changes is an event of the node each time it is looked at."""
    script = 'echo time=\\"$(date +%s%N)\\" level=error msg=\\"GPU is lost\\" >&2; exit 1'
    install(tmp_path, monkeypatch, script)

    with pytest.raises(BackendError) as first:
        from_toolkit(backend.cards())
    with pytest.raises(BackendError) as second:
        from_toolkit(backend.cards())

    assert str(first.value) == str(second.value)
    assert 'level=error msg="GPU is lost"' in str(first.value)


def test_a_toolkit_that_cannot_be_run_is_told(
    backend: NvmlCards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "")
    (tmp_path / "nvidia-ctk").write_bytes(b"\x7fELF of another machine")

    with pytest.raises(BackendError, match="cannot be run"):
        from_toolkit(backend.cards())


def test_the_toolkit_is_asked_first_and_the_hosts_spec_second(
    backend: NvmlCards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways: Mapping[CdiMode, FindEdits] = {
        CdiMode.TOOLKIT: from_toolkit,
        CdiMode.SPEC: lambda cards: from_host(cards, root=tmp_path),
    }

    def find(cards: Sequence[Card]) -> NodeEdits:
        return first_that_works(ways, cards)[1]

    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BackendError, match=r"found no nvidia-ctk.*found no CDI spec"):
        find(backend.cards())

    monkeypatch.undo()
    install(tmp_path, monkeypatch, f"cat <<'END'\n{json.dumps(a_spec())}\nEND")
    assert find(backend.cards()).cards.keys() == {FIRST, SECOND}


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Have a toolkit that does what the script says."""
    program = folder / "nvidia-ctk"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


async def test_an_agent_without_cards_ends_once_a_driver_has_come(tmp_path: Path) -> None:
    stop = asyncio.Event()
    async with ending_for_a_driver(stop, root=tmp_path, look_s=0):
        await asyncio.sleep(0)
        assert not stop.is_set()
        a_driver(tmp_path)
        async with asyncio.timeout(30):
            await stop.wait()


async def test_an_agent_of_a_driver_that_was_there_before_goes_on(tmp_path: Path) -> None:
    a_driver(tmp_path)
    stop = asyncio.Event()
    async with ending_for_a_driver(stop, root=tmp_path, look_s=0):
        for _ in range(10):
            await asyncio.sleep(0)
        assert not stop.is_set()


def a_driver(root: Path) -> None:
    (root / "dev").mkdir()
    (root / "dev" / "nvidiactl").touch()


def test_a_node_without_a_driver_runs_idle_and_one_with_it_asks_nvml(tmp_path: Path) -> None:
    settings = Settings(name="n")
    assert isinstance(choose_backend(settings, root=tmp_path), NoCards)

    a_driver(tmp_path)
    assert isinstance(choose_backend(settings, root=tmp_path), NvmlCards)
