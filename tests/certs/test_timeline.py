"""Whatever the order of events, each served certificate is trusted by each registered bundle."""

import base64
from datetime import datetime, timedelta
from functools import cache
from random import Random

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from hypothesis import example, given, settings
from hypothesis import strategies as st

from certs.bundle import Lifetimes, end_of, fault
from tests.certs.timeline import SECRET, START, Timeline

LIFETIMES = Lifetimes(authority=timedelta(seconds=120), leaf=timedelta(seconds=40))
LAG = timedelta(seconds=4)
"""Less than half of the overlap of 10 s; the real overlap is an hour."""


@cache
def signers(leaf_pem: bytes, bundle: str) -> tuple[datetime, ...]:
    """Return when the authorities of the bundle end that signed the leaf."""
    leaf = x509.load_pem_x509_certificate(leaf_pem)
    found = []
    for authority in x509.load_pem_x509_certificates(base64.b64decode(bundle)):
        try:
            leaf.verify_directly_issued_by(authority)
        except (InvalidSignature, ValueError):
            continue
        found.append(authority.not_valid_after_utc)
    return tuple(found)


def check(timeline: Timeline) -> None:
    for replica in timeline.replicas:
        if replica.leaf is None:
            continue
        leaf_pem = replica.leaf.pair.certificate_pem
        assert timeline.now < end_of(leaf_pem) <= end_of(replica.leaf.signer_pem)
        for bundle in timeline.believed():
            assert any(timeline.now < end for end in signers(leaf_pem, bundle))


@settings(max_examples=15)
@example(seed=68, replicas=1, unrest=0.05)
@given(
    seed=st.integers(min_value=0, max_value=2**32),
    replicas=st.integers(min_value=1, max_value=4),
    unrest=st.sampled_from([0.0, 0.05]),
)
def test_every_served_leaf_is_trusted_at_every_moment(
    seed: int, replicas: int, unrest: float
) -> None:
    chance = Random(seed)  # noqa: S311 - no secret
    timeline = Timeline(LIFETIMES, replicas=replicas, chance=chance)
    timeline.server.register("", "")
    seen = set()

    while timeline.now < START + 3 * LIFETIMES.authority:
        timeline.tick(lag=LAG)
        check(timeline)
        seen |= {each.keeper.known.current for each in timeline.replicas if each.keeper.known}
        if chance.random() < unrest:
            disturb(timeline, chance)

    assert len(seen) >= 3


def disturb(timeline: Timeline, chance: Random) -> None:
    """Restart a replica, or harm the Secret; not both at once, for somebody must remember."""
    if any(each.keeper.known is None for each in timeline.replicas):
        return
    if chance.random() < 0.5:
        # A replica that starts while the Secret is harmed may be the only one to remember.
        stored = timeline.server.objects.get(SECRET, {"data": {}})["data"]
        if fault({key: base64.b64decode(text) for key, text in stored.items()}) is None:
            timeline.restart()
    elif chance.random() < 0.5:
        timeline.server.objects.pop(SECRET, None)
    elif SECRET in timeline.server.objects:
        timeline.server.put(SECRET, {"metadata": {"name": "ca"}, "data": {"ca.crt": "anVuaw=="}})
