"""Unmodified legacy workloads on a real kubelet: each container sees its cards and its limits."""

from pathlib import Path
from typing import Final

import pytest

from hami_dra.lab.wait import until
from hami_dra.migration import Json
from hami_dra.migration.names import DRIVER
from tests.node.bed import (
    NAMESPACE,
    TELL,
    Bed,
    assert_limits_meet_programs,
    computing,
    container,
    deployment,
    pod,
)

pytestmark = pytest.mark.cluster


def test_an_unmodified_deployment_runs_with_its_limits(bed: Bed) -> None:
    web = deployment("web", 2, container(gpu="1", gpumem="3000", gpucores="30"))
    bed.apply(web, "deployments")

    def both() -> list[str] | None:
        names = [each["metadata"]["name"] for each in bed.api.list("pods", namespace=NAMESPACE)]
        return names if len(names) == 2 else None

    for name in until(both, what="both replicas exist"):
        bed.await_running(name)
        told = bed.told(name)
        assert told.variables["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000m"
        assert told.variables["CUDA_DEVICE_SM_LIMIT_0"] == "30"
        assert list(told.memory_mib.values()) == [3000]
        assert "WRITABLE" not in told.text, "containers cannot raise their limits"
        assert "USAGE" in told.text
        assert "PRELOADED" in told.text


def test_two_containers_have_limits_of_their_own(bed: Bed) -> None:
    small = container("small", gpu="1", gpumem="1000")
    large = container("large", gpu="1", gpumem="20000", gpucores="60", priority="0")
    bed.apply(
        pod(
            "pair",
            small,
            large,
            container("none", "test -d /run/vgpu || echo END; exec sleep 1000000"),
        )
    )
    bed.await_running("pair")

    assert list(bed.told("pair", "small").memory_mib.values()) == [1000]
    told = bed.told("pair", "large")
    assert list(told.memory_mib.values()) == [20000]
    assert told.variables["CUDA_DEVICE_SM_LIMIT_0"] == "60"
    assert told.variables["CUDA_TASK_PRIORITY"] == "0"
    assert [control.priority for control in told.controls] == [0]
    assert bed.told("pair", "none").controls == ()


def test_an_init_container_uses_the_claim_of_the_container_it_fits_into(bed: Bed) -> None:
    init = container("init", TELL, gpu="1", gpumem="1000")
    bed.apply(pod("staged", container(gpu="1", gpumem="4000"), init=[init]))
    bed.await_running("staged")

    assert bed.told("staged", "init").memory_mib == bed.told("staged").memory_mib
    assert len(bed.api.list("resourceclaims", namespace=NAMESPACE)) == 1


def test_several_cards_are_numbered_as_cuda_numbers_them(bed: Bed) -> None:
    bed.apply(pod("many", container(gpu="3", gpumem="2000")))
    bed.await_running("many")

    told = bed.told("many")
    assert list(told.memory_mib) == [card.uuid for card in bed.cards], "in the order of the bus"
    assert [told.variables[f"CUDA_DEVICE_MEMORY_LIMIT_{index}"] for index in range(3)] == [
        "2000m"
    ] * 3
    assert told.variables["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_an_exclusive_pod_has_a_card_to_itself(bed: Bed) -> None:
    """And the node, where what is taken of one card is missing on the others."""
    bed.apply(pod("alone", container(gpu="1")))
    bed.await_running("alone")
    [own] = bed.told("alone").memory_mib
    assert bed.told("alone").memory_mib[own] == 81920
    for number in range(2):
        bed.apply(pod(f"shared-{number}", container(gpu="1", gpumem="70000")))
    for number in range(2):
        if bed.kubernetes.tells_cards_apart:
            bed.await_running(f"shared-{number}")
            assert own not in bed.told(f"shared-{number}").memory_mib
        else:
            bed.await_refused(f"shared-{number}")


def with_claim(name: str, claim: str) -> Json:
    """Write a pod that takes an existing claim."""
    taking = container()
    taking["resources"] = {"claims": [{"name": "gpu"}]}
    return pod(name, taking, resourceClaims=[{"name": "gpu", "resourceClaimName": claim}])


def a_claim(name: str, **devices: object) -> Json:
    """Write a claim of 5000 MiB of a card."""
    exactly = {
        "deviceClassName": DRIVER,
        "capacity": {"requests": {"memory": "5000Mi", "cores": "0"}},
    }
    requests = [{"name": "gpu", "exactly": exactly}]
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": requests, **devices}}}


def test_pods_that_share_a_claim_share_its_budget(bed: Bed) -> None:
    bed.apply(a_claim("shared"), "resourceclaims")
    for name in ("first", "second"):
        bed.apply(with_claim(name, "shared"))
        bed.await_running(name)
    assert bed.told("first").memory_mib == bed.told("second").memory_mib
    assert len(bed.files()) == 2, "one claim, prepared once"

    bed.api.delete("pods", "first", namespace=NAMESPACE)
    assert len(bed.files()) == 2
    bed.delete_pods()
    until(lambda: not bed.files(), what="the last one took it away")
    bed.api.delete("resourceclaims", "shared", namespace=NAMESPACE)


def test_a_claim_that_is_refused_says_why_in_the_pods_events(bed: Bed) -> None:
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
    config = [{"opaque": {"driver": DRIVER, "parameters": parameters}}]
    bed.apply(a_claim("configured", config=config), "resourceclaims")
    bed.apply(with_claim("refused", "configured"))

    until(
        lambda: "this driver has no parameters" in bed.events("refused"),
        what="the events of the pod say why",
    )
    assert bed.files() == []
    bed.delete_pods()
    bed.api.delete("resourceclaims", "configured", namespace=NAMESPACE)


def test_the_kubelet_says_in_the_pods_status_that_its_card_is_healthy(bed: Bed) -> None:
    """Or nothing, where its gate for that is off."""
    bed.apply(pod("healthy", container(gpu="1", gpumem="1000")))
    bed.await_running("healthy")

    def health() -> str | None:
        [status] = bed.pod("healthy")["status"]["containerStatuses"]
        for allocated in status.get("allocatedResourcesStatus") or ():
            for resource in allocated["resources"]:
                return str(resource["health"]) if resource["health"] != "Unknown" else None
        return None

    if bed.kubernetes.shows_health:
        assert until(health, what="the pod's status knows its card") == "Healthy"
    else:
        [status] = bed.pod("healthy")["status"]["containerStatuses"]
        assert "allocatedResourcesStatus" not in status


def test_a_program_that_computes_meets_the_native_library_and_its_limits(bed: Bed) -> None:
    assert_limits_meet_programs(bed)


# Takes most of its share, and the first time ends as a program with a fault does: without a word.
_FALLS: Final = """
int main(void)
{
    int count = 0, card;
    void* context;
    address taken;
    int wrong = cuInit(0) || cuDeviceGetCount(&count);
    for (int i = 0; i < count; i++) {
        wrong |= cuDeviceGet(&card, i) || cuCtxCreate_v2(&context, 0, card);
        while (cuMemAlloc_v2(&taken, 900 << 20))
            usleep(50000);
    }
    while (access("/driver/falls.go", F_OK))
        usleep(10000);
    if (open("/driver/falls.first", O_CREAT | O_EXCL, 0600) >= 0)
        __builtin_trap();
    printf("wrong %d of %d\\nEND\\n", wrong, count);
    fflush(stdout);
    pause();
}
"""


def test_a_restarted_container_has_its_whole_share_again(bed: Bed) -> None:
    uuids = ",".join(card.uuid for card in bed.cards)
    falls = computing(bed, "falls", _FALLS, uuids=uuids, gpu="1", gpumem="1000")
    falls["spec"]["restartPolicy"] = "Always"
    bed.apply(falls)
    bed.await_running("falls")

    [process] = [
        each for each in Path("/proc").glob("[0-9]*/comm") if each.read_text() == "falls\n"
    ]
    # As long as somebody has it, the container that follows gets another one.
    with (process.parent / "ns/pid").open():
        (bed.cluster.directory / "driver" / "falls.go").touch()
        assert f"wrong 0 of {len(bed.cards)}" in bed.told("falls").text
    [status] = bed.pod("falls")["status"]["containerStatuses"]
    assert status["restartCount"] == 1


def test_nothing_of_a_deleted_pod_is_left(bed: Bed) -> None:
    bed.apply(pod("gone", container(gpu="2", gpumem="1000")))
    bed.await_running("gone")
    assert len(bed.files()) == 2

    bed.delete_pods()

    until(lambda: not bed.files(), what="no file is left")
    assert bed.api.list("resourceclaims", namespace=NAMESPACE) == []
