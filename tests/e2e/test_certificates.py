"""Certificates come and go on a real control plane, and no call of the webhook fails for it."""

import base64
from datetime import UTC, datetime, timedelta

import pytest

from certs.authority import create_authority
from hami_dra.kube.errors import NotFoundError
from hami_dra.lab.wait import until
from tests.e2e.rotation import Rotation, loaded, rotating
from tests.e2e.world import World

pytestmark = pytest.mark.cluster

FAILURES = "hami_dra_webhook_certificate_reload_failures_total"
LONG = {"authority_s": 90 * 24 * 3600, "leaf_s": 24 * 3600}


def test_three_leaves_and_one_authority_are_replaced_under_load(world: World) -> None:
    """Each leaf lives 24 s of an authority's 96; all that must be seen is seen within that."""
    with rotating(world, authority_s=96, leaf_s=24) as rotation, loaded(world, rotation) as load:
        first = rotation.authority()
        leaves: list[set[bytes]] = [set() for _ in rotation.replicas]

        def has_rotated() -> bool:
            for seen, now in zip(leaves, rotation.served(), strict=True):
                seen.add(now)
            return rotation.authority().current != first.current and all(
                len(seen) > 4 for seen in leaves
            )

        until(has_rotated, what="leaves and the authority were replaced")
        after = rotation.authority()

    assert load.failures == []
    assert load.calls > 100
    assert after.previous == (first.current.certificate_pem,)


def test_an_overwritten_bundle_comes_back(world: World) -> None:
    with rotating(world, **LONG) as rotation:
        [truth] = rotation.bundles()
        other = world.scene.webhook.client_config["caBundle"]

        rotation.overwrite_bundles(other)

        until(lambda: rotation.bundles() == {truth}, what="the bundle is right again")


@pytest.mark.parametrize("damage", ["junk", "mismatched", "empty", "deleted"])
def test_a_damaged_secret_disturbs_nobody_and_is_repaired(world: World, damage: str) -> None:
    with rotating(world, **LONG) as rotation, loaded(world, rotation) as load:
        intact = rotation.secret()["data"]
        served = rotation.served()

        harm(rotation, damage)
        until(
            lambda: sum(replica.metric(FAILURES) for replica in rotation.replicas) >= 1,
            what="a replica has told the trouble",
        )
        until(
            lambda: rotation.secret()["data"] == intact,
            what="the Secret is repaired",
            tolerate=(NotFoundError,),
        )
        calls = load.calls
        until(lambda: load.calls > calls + 20, what="the load went on")

        assert rotation.served() == served
        assert all(replica.is_ready() for replica in rotation.replicas)
    assert load.failures == []


def harm(rotation: Rotation, damage: str) -> None:
    """Do what people and backups do to Secrets."""
    intact = rotation.secret()["data"]
    match damage:
        case "junk":
            rotation.write_secret({**intact, "ca.crt": "anVuaw=="})
        case "mismatched":
            rotation.write_secret({**intact, "ca.key": other_key()})
        case "empty":
            rotation.write_secret({})
        case "deleted":
            rotation.delete_secret()


def other_key() -> str:
    """Return the key of an authority that nobody has heard of, base64."""
    other = create_authority("other", now=datetime.now(UTC), lifetime=timedelta(days=1))
    return base64.b64encode(other.key_pem).decode()
