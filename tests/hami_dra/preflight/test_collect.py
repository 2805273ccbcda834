"""What is collected: answers, refusals, and what the account may not see."""

import json

import pytest

from hami_dra.kube.errors import ApiError, UnreachableError
from hami_dra.kube.session import Session
from hami_dra.migration import Family, Json, Policy
from hami_dra.preflight.collect import collect, node_of, pool_of, probed_family
from hami_dra.preflight.evidence import Evidence, Hidden, Probe, Served
from tests.hami_dra.kube.api_double import ApiDouble, status_object
from tests.hami_dra.preflight.evidence import POLICY, registration

READY = "GET /api/v1/namespaces/hami-dra-system/services/https:hami-dra-webhook:443/proxy/readyz"
NO_JSON = "Expecting value: line 1 column 1 (char 0)"
TWICE = ["POST /apis/resource.k8s.io/v1/namespaces/team/resourceclaimtemplates"]
PODS = "POST /api/v1/namespaces/team/pods"


async def collected(session: Session, policy: Policy = POLICY) -> Evidence:
    return await collect(session, policy, namespace="team")


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, {"missing": []}, Served(b"", "", {"missing": []})),
        (503, {"missing": ["certificate"]}, Served(b"", "", {"missing": ["certificate"]})),
        (503, status_object(503, "ServiceUnavailable", "no endpoints"), Served(b"", "", None)),
        (503, b"[]", Served(b"", "", None)),
        (403, status_object(403, "Forbidden", "no"), Hidden("403 Forbidden: no")),
        (200, b"", Hidden(f"{READY}: the answer is not JSON: {NO_JSON}")),
    ],
)
async def test_a_service_is_asked_through_the_api_server(
    api: ApiDouble, session: Session, status: int, body: Json | bytes, expected: object
) -> None:
    await api.put("mutatingwebhookconfigurations", registration())
    api.fail(READY, status, body)

    assert (await collected(session)).served == expected


async def test_without_a_registration_there_is_nobody_to_ask(
    api: ApiDouble, session: Session
) -> None:
    api.fail("GET /apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", 403)
    hidden = (await collected(session)).served
    absent = (await collected(session)).served

    assert hidden == Hidden("403 Fault: injected")
    assert absent == Hidden("the webhook is not registered")


async def test_a_refusal_is_an_answer_and_a_lack_of_rights_is_not(
    api: ApiDouble, session: Session
) -> None:
    denied = 'admission webhook "x" denied the request: no'
    forbidden = 'pods is forbidden: User "u" cannot create resource "pods"'
    api.fail(PODS, 403, status_object(403, "Forbidden", denied))
    api.fail(PODS, 403, status_object(403, "Forbidden", forbidden))

    refused = (await collected(session)).pod
    hidden = (await collected(session)).pod

    assert refused == Probe(None, denied)
    assert isinstance(hidden, Hidden)


async def test_an_api_server_that_is_not_there_is_one_error(
    api: ApiDouble, session: Session
) -> None:
    api.fail("GET /version", 200, b"<html>")

    with pytest.raises(UnreachableError):
        await collected(session)
    assert api.calls == ["GET /version"]


async def test_a_read_without_an_answer_hides_its_own_part(
    api: ApiDouble, session: Session
) -> None:
    """A cluster in trouble is the one that is asked about."""
    for call in ("GET /api/v1/nodes", PODS):
        api.fail(call, 200, b"<html>")

    found = await collected(session)

    assert isinstance(found.nodes, Hidden)
    assert "GET /api/v1/nodes" in found.nodes.reason
    assert isinstance(found.pod, Hidden)
    assert found.quotas == []


async def test_an_api_server_that_goes_meanwhile_is_one_error(
    api: ApiDouble, session: Session
) -> None:
    await collected(session)
    for call in set(api.calls) - {"GET /version"}:
        api.fail(call, 200, b"<html>")
    for call in TWICE:
        api.fail(call, 200, b"<html>")

    with pytest.raises(UnreachableError):
        await collected(session)


@pytest.mark.parametrize("call", ["GET /version", "GET /api/v1/nodes", PODS])
async def test_an_api_server_that_does_not_know_us_is_one_error(
    api: ApiDouble, session: Session, call: str
) -> None:
    """It is no fact of the cluster; dry runs that it refused were told as gates that are off."""
    api.fail(call, 401, status_object(401, "Unauthorized", "Unauthorized"))

    with pytest.raises(ApiError, match="401 Unauthorized"):
        await collected(session)


async def test_a_namespace_that_is_not_there_is_one_error(api: ApiDouble, session: Session) -> None:
    """So it is with a mistyped --namespace, which says nothing of gates or of the webhook."""
    status = status_object(404, "NotFound", 'namespaces "team" not found')
    status["details"] = {"name": "team", "kind": "namespaces"}
    api.fail(PODS, 404, status)

    with pytest.raises(ApiError, match='namespaces "team" not found'):
        await collected(session)


async def test_dry_runs_are_dry_and_speak_of_the_policys_own_resources(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, Json, object]] = []
    create = Session.create

    async def spied(self: Session, path: str, body: Json, *, query: object = None) -> Json:
        sent.append((path, body, query))
        return await create(self, path, body)

    monkeypatch.setattr(Session, "create", spied)
    names = Family().resources.model_copy(update={"count": "", "memory": "example.com/mem"})
    family = Family(name="x", resources=names, device_class="x.example", entry_prefix="dcu")

    await collected(session, Policy(families=(family,)))

    assert len(sent) == 4
    assert all(query == {"dryRun": "All"} for _, _, query in sent)
    kinds = ["Pod", "ResourceClaim", "ResourceClaimTemplate", "ResourceClaimTemplate"]
    assert sorted(body["kind"] for _, body, _ in sent) == kinds
    text = json.dumps(sent)
    assert '"example.com/mem": "1"' in text
    assert '"deviceClassName": "x.example"' in text


def test_a_policy_that_converts_nothing_is_probed_with_the_default() -> None:
    assert probed_family(Policy(families=())) == Family()
    assert probed_family(Policy(families=(Family(device_class=""),))) == Family()


def test_a_capacity_may_be_named_with_its_drivers_domain() -> None:
    devices: list[Json] = [{"capacity": {"memory": {}, "d/cores": {}, "x/slots": {}}}]
    spec = {"driver": "d", "pool": {"name": "p", "generation": 1}, "devices": devices}

    assert pool_of({"spec": spec}).capacities == {"memory", "cores", "x/slots"}


def test_slices_and_nodes_without_anything_are_read_too() -> None:
    pool = pool_of({"spec": {"driver": "d", "pool": {"name": "p", "generation": 1}}})
    node = node_of({"metadata": {"name": "n"}})

    assert (pool.node, pool.devices, pool.capacities) == ("", 0, frozenset())
    assert (node.allocatable, node.annotations) == ({}, {})
