"""Audit events say who did what, and lines in the making are left for later."""

import json
from pathlib import Path

from hami_dra.lab.audit import AuditLog, Event
from hami_dra.migration import Json

CREATE: Json = {
    "kind": "Event",
    "apiVersion": "audit.k8s.io/v1",
    "level": "RequestResponse",
    "stage": "ResponseComplete",
    "requestURI": "/apis/resource.k8s.io/v1/namespaces/team/resourceclaimtemplates",
    "verb": "create",
    "user": {"username": "system:serviceaccount:hami-dra-system:hami-dra-webhook"},
    "userAgent": "hami-dra",
    "objectRef": {
        "resource": "resourceclaimtemplates",
        "namespace": "team",
        "name": "hami-1",
        "apiGroup": "resource.k8s.io",
        "apiVersion": "v1",
    },
    "responseStatus": {"code": 201},
    "requestObject": {"kind": "ResourceClaimTemplate"},
}
DRY = {**CREATE, "requestURI": f"{CREATE['requestURI']}?fieldManager=x&dryRun=All"}
PAGE = {"requestURI": "/readyz", "verb": "get", "user": {}}


def test_an_event_says_who_did_what_and_what_came_of_it() -> None:
    event = Event.of(CREATE)

    assert event.user == "system:serviceaccount:hami-dra-system:hami-dra-webhook"
    assert (event.verb, event.group, event.resource) == (
        "create",
        "resource.k8s.io",
        "resourceclaimtemplates",
    )
    assert (event.namespace, event.name, event.code) == ("team", "hami-1", 201)
    assert event.request == {"kind": "ResourceClaimTemplate"}


def test_only_what_is_to_be_stored_is_a_write() -> None:
    read = {**CREATE, "verb": "list"}

    assert [Event.of(each).is_write for each in (CREATE, DRY, read, PAGE)] == [
        True,
        False,
        False,
        False,
    ]


def test_an_event_says_which_webhooks_were_asked_in_each_round() -> None:
    rounds = {
        f"mutation.webhook.admission.k8s.io/round_{each}_index_0": json.dumps(
            {"configuration": "ours", "webhook": "pods.example.com", "mutated": False}
        )
        for each in range(2)
    }
    other = {"authorization.k8s.io/decision": "allow"}

    assert Event.of({**CREATE, "annotations": {**other, **rounds}}).reviews == ("ours", "ours")
    assert Event.of(CREATE).reviews == ()


def test_a_line_in_the_making_is_left_for_later(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    whole = json.dumps(CREATE).encode()
    log.path.write_bytes(whole + b"\n" + whole[:40])

    assert [event.name for event in log.events()] == ["hami-1"]
    assert list(log.events(len(whole) + 1)) == []
