"""The serving certificate: whom it names, who signs it, and when another one is due. Pure."""

from dataclasses import dataclass
from datetime import datetime

from certs.authority import CLOCK_SKEW, KeyPair, Usage, issue
from certs.bundle import Authority, Lifetimes, created_at, renew_at


@dataclass(frozen=True, slots=True)
class Names:
    """What clients dial.

    Attributes:
        dns: names.
        ips: addresses.
    """

    dns: tuple[str, ...]
    ips: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Leaf:
    """A serving certificate.

    Attributes:
        pair: what is served.
        signer_pem: the certificate of the authority that signed it.
    """

    pair: KeyPair
    signer_pem: bytes


def service_names(service: str, namespace: str, *ips: str) -> Names:
    """Return the names by which an API server and a person dial a Service."""
    short = f"{service}.{namespace}.svc"
    return Names(dns=(short, f"{short}.cluster.local"), ips=ips)


def leaf_fault(leaf: Leaf | None, authority: Authority, *, now: datetime) -> str | None:
    """Say why another leaf must be served, or return None."""
    if leaf is None:
        return "none was issued yet"
    if leaf.signer_pem != authority.current.certificate_pem:
        return "another authority signs now"
    if now < created_at(leaf.pair.certificate_pem) - CLOCK_SKEW:
        return "it is not valid yet: the clock was set back"
    if now >= renew_at(leaf.pair.certificate_pem):
        return "two thirds of its life are over"
    return None


def issue_leaf(authority: Authority, names: Names, *, lifetimes: Lifetimes, now: datetime) -> Leaf:
    """Sign a serving certificate."""
    pair = issue(
        authority.current,
        # Clients read the alternative names; a long one would not fit here.
        common_name="hami-dra-webhook",
        usages=[Usage.SERVER],
        now=now,
        lifetime=lifetimes.leaf,
        dns_names=names.dns,
        ip_addresses=names.ips,
    )
    return Leaf(pair, authority.current.certificate_pem)
