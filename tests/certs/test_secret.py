"""Replicas agree over one Secret without a leader, and put right what somebody changed."""

import base64
from datetime import timedelta
from random import Random

import pytest

from certs.bundle import Lifetimes, ca_bundle
from certs.secret import Json, OvertakenError, SecretKeeper
from tests.certs.timeline import MUTATING, PLACE, SECRET, START, VALIDATING, Server, Timeline

LIFETIMES = Lifetimes(authority=timedelta(days=90), leaf=timedelta(days=9))
GARBAGE = {"ca.crt": "anVuaw==", "ca.key": "anVuaw=="}


@pytest.fixture
def timeline() -> Timeline:
    """Two replicas that stand still, and a registration that trusts nobody yet."""
    found = Timeline(LIFETIMES, replicas=2, chance=Random(0))  # noqa: S311 - no secret
    found.server.register("", "")
    return found


def trusted(timeline: Timeline) -> bytes:
    """Return what the registration trusts, which all its webhooks must agree on."""
    [text] = {
        each["clientConfig"]["caBundle"] for each in timeline.server.objects[MUTATING]["webhooks"]
    }
    return base64.b64decode(text)


def test_the_first_look_makes_the_secret_and_registers_it(timeline: Timeline) -> None:
    [first, _] = timeline.replicas
    first.look()

    assert first.keeper.known is not None
    assert trusted(timeline) == ca_bundle(first.keeper.known)
    secret = timeline.server.objects[SECRET]
    assert set(secret["data"]) == {"ca.crt", "ca.key"}
    assert secret["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "hami-dra"}


def test_replicas_that_start_together_share_one_authority(timeline: Timeline) -> None:
    """The one whose creation comes second reads what the first one wrote."""
    first, second = timeline.replicas
    while not (first.leaf and second.leaf):
        first.step()
        second.step()

    assert first.keeper.known == second.keeper.known is not None
    assert first.leaf.signer_pem == second.leaf.signer_pem


def test_a_look_at_what_is_right_writes_nothing(timeline: Timeline) -> None:
    for replica in timeline.replicas:
        replica.look()
    before = timeline.server.writes

    for replica in timeline.replicas:
        replica.look()

    assert timeline.server.writes == before


def test_an_overwritten_bundle_comes_back(timeline: Timeline) -> None:
    first, second = timeline.replicas
    first.look()
    timeline.server.register("bm9ib2R5", timeline.server.bundle())

    second.look()

    assert first.keeper.known is not None
    assert trusted(timeline) == ca_bundle(first.keeper.known)


def test_what_a_configuration_says_besides_stays(timeline: Timeline) -> None:
    hook = {"name": "a", "clientConfig": {"url": "https://a"}, "unknown": [1]}
    timeline.server.put(VALIDATING, {"webhooks": [hook], "kind": "Kind", "later": {"a": 1}})
    timeline.replicas[0].look()

    found = timeline.server.objects[VALIDATING]
    assert found["webhooks"][0].pop("clientConfig").keys() == {"url", "caBundle"}
    assert found["webhooks"] == [{"name": "a", "unknown": [1]}]
    assert (found["kind"], found["later"]) == ("Kind", {"a": 1})


@pytest.mark.parametrize("data", [None, {}, GARBAGE, {"ca.crt": "%"}])
def test_a_damaged_secret_comes_back_as_it_was(timeline: Timeline, data: Json | None) -> None:
    """No leaf in use loses its authority, and nobody has to be told."""
    first, second = timeline.replicas
    first.look()
    second.look()
    intact = timeline.server.objects[SECRET]["data"]
    bundle = trusted(timeline)
    metadata = {"name": "ca", "annotations": {"a": "theirs"}}
    timeline.server.put(SECRET, {"metadata": metadata, "data": data})

    second.look()
    first.look()

    found = timeline.server.objects[SECRET]
    assert found["data"] == intact
    assert found["metadata"]["annotations"] == {"a": "theirs"}
    assert trusted(timeline) == bundle


def test_a_deleted_secret_comes_back_as_it_was(timeline: Timeline) -> None:
    [first, _] = timeline.replicas
    first.look()
    intact = timeline.server.objects.pop(SECRET)

    first.look()

    assert timeline.server.objects[SECRET]["data"] == intact["data"]


def test_a_replica_that_remembers_nothing_replaces_garbage(timeline: Timeline) -> None:
    timeline.server.put(SECRET, {"metadata": {"name": "ca"}, "data": GARBAGE})
    first, second = timeline.replicas
    while not (first.leaf and second.leaf):
        second.step()
        first.step()

    assert first.keeper.known is not None
    assert first.keeper.known == second.keeper.known
    assert trusted(timeline) == ca_bundle(first.keeper.known)


def test_another_fit_secret_is_the_truth(timeline: Timeline) -> None:
    """A person may restore a backup or throw an authority away; the Secret rules."""
    first, second = timeline.replicas
    first.look()
    other = Timeline(LIFETIMES, replicas=1, chance=Random(0))  # noqa: S311 - no secret
    other.replicas[0].look()
    timeline.server.put(SECRET, other.server.objects[SECRET])

    first.look()
    second.look()

    assert first.keeper.known == second.keeper.known == other.replicas[0].keeper.known
    assert first.leaf is not None
    assert first.leaf.signer_pem in trusted(timeline)


@pytest.mark.parametrize("steps", range(1, 6))
def test_an_older_view_never_sets_a_registration_back(timeline: Timeline, steps: int) -> None:
    """A replica is held up somewhere between its first read and writing the bundle."""
    first, second = timeline.replicas
    first.look()
    second.look()
    timeline.server.register("bm9ib2R5")
    for _ in range(steps):
        first.step()
    timeline.now += LIFETIMES.authority * 2 / 3
    second.look()
    bundle = trusted(timeline)

    first.look()

    assert bundle.count(b"BEGIN") == 2
    assert trusted(timeline) == bundle


class Contested(Server):
    """Somebody writes to every object whenever a replica is about to."""

    async def replace(self, path: str, item: Json) -> bool:
        """Lose the race."""
        self.put(path, self.objects[path])
        return await super().replace(path, item)


async def test_a_race_that_is_always_lost_is_given_up() -> None:
    server = Contested()
    server.register("")

    with pytest.raises(OvertakenError, match="expected other replicas to agree"):
        await SecretKeeper(server, PLACE, LIFETIMES).ensure(START)
