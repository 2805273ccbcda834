"""Whatever is restarted, no pod is hurt and the cards are back."""

from typing import Final

import pytest

from hami_dra.lab.controlplane import API_SERVER
from hami_dra.lab.ports import free_ports
from hami_dra.lab.realnode import CONTAINERD, KUBELET
from hami_dra.lab.wait import until
from tests.node.bed import NAMESPACE, Bed, agent_arguments, container, pod

pytestmark = pytest.mark.cluster


def test_a_restarted_kubelet_finds_the_cards_again(bed: Bed) -> None:
    bed.apply(pod("before", container(gpu="1", gpumem="1000")))
    before = bed.await_running("before")
    old = bed.await_slice()
    bed.node.stop(KUBELET)
    bed.node.start_kubelet()

    def is_new() -> bool:
        found = bed.slice()
        return found is not None and found["metadata"]["uid"] != old["metadata"]["uid"]

    until(is_new, what="the slice that the kubelet deleted is back")
    bed.node.await_ready(bed.api)
    bed.apply(pod("after", container(gpu="1", gpumem="1000")))
    bed.await_running("after")

    assert restarts(bed.await_running("before")) == restarts(before)


def restarts(found: dict[str, object]) -> object:
    status = found["status"]
    assert isinstance(status, dict)
    return [each["restartCount"] for each in status["containerStatuses"]]


@pytest.mark.parametrize("kill", [False, True])
def test_a_restarted_agent_hurts_no_pod(
    bed: Bed,
    kill: bool,  # noqa: FBT001 - a parameter
) -> None:
    bed.apply(pod("before", container(gpu="1", gpumem="1000")))
    before = bed.await_running("before")
    slice_before = bed.await_slice()

    bed.stop_agent(kill=kill)
    bed.start_agent()

    assert bed.slice() == slice_before, "the slice was right and was left alone"
    bed.apply(pod("after", container(gpu="1", gpumem="1000")))
    bed.await_running("after")
    assert restarts(bed.await_running("before")) == restarts(before)


def test_a_pod_that_goes_while_the_agent_is_away_goes_when_it_is_back(bed: Bed) -> None:
    bed.apply(pod("leaving", container(gpu="1", gpumem="1000")))
    bed.await_running("leaving")
    bed.stop_agent()
    bed.api.delete("pods", "leaving", namespace=NAMESPACE, wait=False)
    assert bed.files(), "the claim is still prepared"

    bed.start_agent()

    until(lambda: not bed.files(), what="the claim is unprepared")


def test_a_rolling_update_leaves_no_gap(bed: Bed) -> None:
    bed.stop_agent()
    bed.start_agent("--instance", "old", name="agent-old")
    for number in range(3):
        bed.apply(pod(f"before-{number}", container(gpu="1", gpumem="1000")))
    bed.start_agent("--instance", "new", name="agent-new")
    for number in range(3):
        bed.apply(pod(f"during-{number}", container(gpu="1", gpumem="1000")))
        bed.api.delete("pods", f"before-{number}", namespace=NAMESPACE, wait=False)
    bed.stop_agent(name="agent-old")
    for number in range(3):
        bed.apply(pod(f"after-{number}", container(gpu="1", gpumem="1000")))

    for number in range(3):
        assert restarts(bed.await_running(f"during-{number}")) == [0]
        bed.await_running(f"after-{number}")
    until(lambda: len(bed.files()) == 12, what="six claims are left")
    bed.delete_pods()
    bed.stop_agent(name="agent-new")
    bed.start_agent()


def test_a_restarted_containerd_hurts_no_pod(bed: Bed) -> None:
    bed.apply(pod("before", container(gpu="1", gpumem="1000")))
    before = bed.await_running("before")
    bed.node.stop(CONTAINERD)
    bed.node.start_containerd()

    bed.apply(pod("after", container(gpu="1", gpumem="1000")))
    bed.await_running("after")
    assert restarts(bed.await_running("before")) == restarts(before)


@pytest.mark.parametrize("harm", ["cut", "gone"])
def test_a_lost_checkpoint_hurts_no_pod(bed: Bed, harm: str) -> None:
    bed.apply(pod("before", container(gpu="1", gpumem="1000")))
    before = bed.await_running("before")
    folder = bed.node.layout.kubelet / "plugins" / "hami-core-gpu.project-hami.io"
    bed.stop_agent()
    for path in (folder / "checkpoint", folder / "checkpoint.1"):
        if harm == "cut":
            path.write_bytes(path.read_bytes()[:50])
        else:
            path.unlink()

    bed.start_agent()

    assert restarts(bed.await_running("before")) == restarts(before)
    assert len(bed.files()) == 2, "rebuilt from the claim's own files"
    for path in folder.glob("*.damaged"):
        path.unlink()


def test_a_deleted_slice_is_back_at_once(bed: Bed) -> None:
    old = bed.await_slice()
    bed.api.delete("resourceslices", old["metadata"]["name"], wait=False)

    def is_new() -> bool:
        found = bed.slice()
        return found is not None and found["metadata"]["uid"] != old["metadata"]["uid"]

    until(is_new, what="the slice is back")


def test_a_node_made_anew_has_its_cards(bed: Bed) -> None:
    old = bed.api.get("nodes", bed.node.name)["metadata"]["uid"]
    bed.api.delete("nodes", bed.node.name)
    bed.node.stop(KUBELET)
    bed.node.start_kubelet()
    bed.node.await_ready(bed.api)

    def owner() -> bool:
        found = bed.slice()
        return found is not None and found["metadata"]["ownerReferences"][0]["uid"] != old

    until(owner, what="the slice belongs to the new node")
    bed.apply(pod("after", container(gpu="1", gpumem="1000")))
    bed.await_running("after")


def test_a_pod_whose_claim_cannot_be_read_waits_with_the_reason_and_starts_later(
    bed: Bed,
) -> None:
    # The kubelet has an API server and the agent has none: the kubelet reads claims before it asks.
    bed.stop_agent()
    [port] = free_ports(1)
    lost = bed.cluster.directory / "lost.kubeconfig"
    told = bed.cluster.kubeconfig.read_text()
    lost.write_text(told.replace(bed.cluster.server, f"https://127.0.0.1:{port}"))
    bed.node.start_agent(*agent_arguments(), kubeconfig=lost)
    bed.apply(pod("early", container(gpu="1", gpumem="1000")))
    until(
        lambda: "could not be read from the API server" in bed.events("early"),
        what="the events of the pod say why",
    )
    assert bed.files() == []

    bed.stop_agent()
    bed.start_agent()
    bed.await_running("early")


# Tells that it was asked to end, and ends when it is let go.
_LINGERS: Final = (
    "trap 'touch /signs/asked' TERM; echo END; until test -e /signs/go; do sleep 0.1; done"
)


def test_a_pod_that_ends_while_the_api_server_is_away_leaves_nothing(bed: Bed) -> None:
    signs = bed.cluster.directory / "signs"
    signs.mkdir()
    lingering = container(command=_LINGERS, gpu="1", gpumem="1000")
    lingering["volumeMounts"] = [{"name": "signs", "mountPath": "/signs"}]
    volume = {"name": "signs", "hostPath": {"path": str(signs)}}
    bed.apply(pod("late", lingering, volumes=[volume], terminationGracePeriodSeconds=600))
    bed.told("late")
    bed.api.delete("pods", "late", namespace=NAMESPACE, wait=False)
    # What the kubelet has not heard by then it hears only from the API server that comes back.
    until((signs / "asked").exists, what="the kubelet ends the pod")
    bed.cluster.processes[API_SERVER].stop()
    try:
        assert bed.files(), "the pod still runs"
        (signs / "go").touch()
        until(lambda: not bed.files(), what="the claim is unprepared")
    finally:
        bed.cluster.restart(API_SERVER)

    until(
        lambda: bed.api.find("pods", "late", namespace=NAMESPACE) is None,
        what="the pod is gone",
    )
