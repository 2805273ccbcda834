"""A slice is published once, changed only when it differs, and dropped fields are noticed."""

import copy
import json

import pytest

from hami_dra.kube.session import Session
from hami_dra.kube.slices import DroppedFieldsError, publish
from hami_dra.migration import Json
from hami_dra.node.devices import resource_slice
from hami_dra.node.simulated import cards
from tests.hami_dra.kube.api_double import SLICES, ApiDouble


def a_slice(count: int = 2) -> Json:
    return resource_slice(
        cards("a100-80g", count, "n1"), node="n1", node_uid="u1", driver="gpu.example.com"
    )


NAME = a_slice()["metadata"]["name"]
PUT = f"PUT {SLICES}/{NAME}"
POST = f"POST {SLICES}"


def canonical(item: Json) -> Json:
    """Rewrite quantities as the API server does."""
    stored: Json = json.loads(json.dumps(item).replace('"81920Mi"', '"80Gi"'))
    return stored


def without_gate(item: Json) -> Json:
    """Store what an API server without DRAConsumableCapacity stores."""
    stored = copy.deepcopy(item)
    for device in stored["spec"]["devices"]:
        del device["allowMultipleAllocations"]
        for capacity in device["capacity"].values():
            del capacity["requestPolicy"]
    return stored


async def test_it_is_created_and_then_left_alone(api: ApiDouble, session: Session) -> None:
    api.on_store = canonical

    stored = await publish(session, a_slice())
    again = await publish(session, a_slice())

    assert stored == again
    assert stored["spec"]["pool"]["generation"] == 1
    assert (api.count(POST), api.count(PUT)) == (1, 0)


async def test_a_change_raises_the_generation(api: ApiDouble, session: Session) -> None:
    wanted = a_slice(3)

    await publish(session, a_slice(2))
    stored = await publish(session, wanted)

    assert stored["spec"]["pool"]["generation"] == 2
    assert len(stored["spec"]["devices"]) == 3
    assert wanted == a_slice(3)
    assert api.count(PUT) == 1


async def test_a_node_made_anew_becomes_the_owner(api: ApiDouble, session: Session) -> None:
    await publish(session, a_slice())
    wanted = a_slice()
    wanted["metadata"]["ownerReferences"][0]["uid"] = "u2"

    await publish(session, wanted)

    assert api.found("resourceslices", "", NAME)["metadata"]["ownerReferences"][0]["uid"] == "u2"


@pytest.mark.parametrize("call", [POST, PUT])
async def test_a_conflict_reads_again(api: ApiDouble, session: Session, call: str) -> None:
    if call == PUT:
        await publish(session, a_slice(1))
    api.fail(call, 409)

    stored = await publish(session, a_slice(2))

    assert len(stored["spec"]["devices"]) == 2
    assert api.count(call) == 2


async def test_dropped_fields_name_the_gate(api: ApiDouble, session: Session) -> None:
    api.on_store = without_gate

    with pytest.raises(DroppedFieldsError, match="DRAConsumableCapacity") as caught:
        await publish(session, a_slice())

    assert caught.value.fields == (
        "allowMultipleAllocations",
        "capacity.memory.requestPolicy",
        "capacity.cores.requestPolicy",
        "capacity.slots.requestPolicy",
    )
