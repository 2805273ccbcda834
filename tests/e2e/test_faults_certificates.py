"""A certificate that cannot be renewed: the old one serves on, and a person can see what is wrong.

Rotation and repair under load are in `test_certificates.py`.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from hami_dra.lab.replica import IDENTITY, Replica, await_ready, launch
from hami_dra.lab.wait import until
from hami_dra.migration import Json
from hami_dra.migration.registration import NAME, SYSTEM_NAMESPACE
from tests.e2e.faults import Service, storm
from tests.e2e.rotation import Rotation
from tests.e2e.test_certificates import FAILURES, harm

pytestmark = pytest.mark.cluster

ROLE = f"{NAME}-certificates"

SHAPE = {"gpu": 1, "gpumem": 6000, "gpucores": 60}


def trouble(replica: Replica) -> str | None:
    """Return what readiness says of the certificate; the replica must be ready all the same."""
    status, body = replica.show("/readyz")
    assert status == 200, body
    found: dict[str, str] = json.loads(body).get("degraded", {})
    return found.get("certificate")


def is_fine(replica: Replica) -> bool:
    """Tell whether readiness says nothing of the certificate."""
    return trouble(replica) is None


@contextmanager
def without_right_to_write_secrets(service: Service) -> Iterator[None]:
    """Take from the shipped Role what a careful administrator might."""
    api = service.scene.api
    intact = api.get("roles", ROLE, namespace=SYSTEM_NAMESPACE)["rules"]
    reading = [rule for rule in intact if "get" in rule["verbs"]]
    reading = [{**rule, "verbs": ["get", "list", "watch"]} for rule in reading]

    def rules(wanted: list[Json]) -> None:
        api.patch("roles", ROLE, {"rules": wanted}, namespace=SYSTEM_NAMESPACE)

    rules(reading)
    try:
        arguments = ("auth", "can-i", "update", f"secrets/{NAME}-ca", f"--as={IDENTITY}")
        until(
            lambda: (
                "no"
                in service.scene.cluster.kubectl(
                    *arguments, "-n", SYSTEM_NAMESPACE, check=False
                ).stdout
            ),
            what="the API server heeds it",
        )
        yield
    finally:
        rules(intact)


@pytest.mark.parametrize("damage", ["junk", "mismatched"])
def test_a_damaged_secret_that_cannot_be_repaired_is_told_and_costs_no_call(
    service: Service, damage: str
) -> None:
    rotation = Rotation(service.scene.api, service.replicas.running)
    intact, served = rotation.secret()["data"], rotation.served()
    before = [replica.metric(FAILURES) for replica in rotation.replicas]
    with service.nothing_but_admission(), storm(service, SHAPE) as seen:
        with without_right_to_write_secrets(service):
            harm(rotation, damage)
            for replica in rotation.replicas:
                said = until(partial(trouble, replica), what="readiness tells the trouble")
                assert "could not keep the authority's Secret: 403" in said
            seen.await_more(20)
            assert rotation.served() == served
        rotation.write_secret(intact)
        for replica in rotation.replicas:
            until(partial(is_fine, replica), what="the trouble is over")
        seen.await_more(20)

    assert seen.failures == []
    after = [replica.metric(FAILURES) for replica in rotation.replicas]
    assert all(now > then for now, then in zip(after, before, strict=True))
    assert rotation.served() == served


def test_a_mismatched_pair_in_mounted_files_is_told_and_the_old_one_serves_on(
    service: Service,
) -> None:
    """As when whoever renews a mounted Secret writes one half of it."""
    cluster = service.scene.cluster
    replica = launch(cluster, "mounted")
    try:
        await_ready(replica)
        served = replica.served(cluster.ca_pem)
        good = cluster.issuer.server(NAME)

        (replica.files / "tls.crt").write_bytes(good.certificate_pem)
        said = until(partial(trouble, replica), what="readiness tells the trouble")

        assert "found a pair that TLS refuses" in said
        assert replica.metric(FAILURES) == 1
        assert replica.served(cluster.ca_pem) == served

        (replica.files / "tls.key").write_bytes(good.key_pem)
        until(partial(is_fine, replica), what="the trouble is over")

        assert replica.served(cluster.ca_pem) != served
    finally:
        replica.process.stop()
