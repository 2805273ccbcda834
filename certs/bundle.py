"""Decide what the authority's Secret must hold: who signs, who follows, who is still trusted.

Pure: the present comes in as `now`, and what must be written goes out as a value. A new authority
is trusted for a while before it signs, and an old one until it ends. A leaf never outlives its
authority, so no served leaf is ever without a trusted authority, whoever sees a change late.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from certs.authority import (
    CLOCK_SKEW,
    UNREADABLE,
    CertificateError,
    KeyPair,
    check_authority,
    create_authority,
)

CURRENT: Final = ("ca.crt", "ca.key")
"""Keys of the Secret: the authority that signs."""

FOLLOWING: Final = ("next.crt", "next.key")
"""Keys of the Secret: the authority that will sign, already trusted."""

PREVIOUS: Final = "previous.crt"
"""Key of the Secret: certificates of authorities that no longer sign and are still trusted."""

AUTHORITY_NAME: Final = "hami-dra-webhook-ca"
"""Common name of the authorities."""

_LONGEST_OVERLAP: Final = timedelta(hours=1)
_LONGEST_PAUSE: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    """How long certificates are valid, and what follows from that.

    Attributes:
        authority: of an authority.
        leaf: of a serving certificate; at most a third of its authority's.
    """

    authority: timedelta = timedelta(days=365)
    leaf: timedelta = timedelta(days=30)

    def __post_init__(self) -> None:
        if not timedelta(seconds=1) <= self.leaf <= self.authority / 3:
            raise CertificateError(
                f"lifetimes: found {self.leaf} for a serving certificate and {self.authority} for"
                " its authority, expected at least a second and at most a third of the authority's;"
                " make the first shorter or the second longer"
            )

    @property
    def overlap(self) -> timedelta:
        """How long a new authority is trusted before it signs.

        It must exceed what an API server or a replica may be late: seconds, in practice.
        """
        return min(_LONGEST_OVERLAP, self.authority / 12)

    @property
    def pause(self) -> timedelta:
        """The longest time between two looks at the Secret; events make it shorter."""
        return min(_LONGEST_PAUSE, self.overlap / 4, self.leaf / 8)


@dataclass(frozen=True, slots=True)
class Authority:
    """What the Secret holds.

    Attributes:
        current: signs leaves.
        following: is trusted and does not sign yet.
        previous: certificates that signed once, whose leaves may be alive.
    """

    current: KeyPair
    following: KeyPair | None = None
    previous: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Renewal:
    """A change of the Secret.

    Attributes:
        reason: a sentence for the log.
        authority: what the Secret must hold.
    """

    reason: str
    authority: Authority


def create(lifetimes: Lifetimes, *, now: datetime) -> Authority:
    """Begin with one authority, which signs at once: nobody trusts another."""
    return Authority(_created(lifetimes, now))


def secret_data(authority: Authority) -> dict[str, bytes]:
    """Return the Secret's data."""
    data = dict(zip(CURRENT, _halves(authority.current), strict=True))
    if authority.following is not None:
        data |= zip(FOLLOWING, _halves(authority.following), strict=True)
    if authority.previous:
        data[PREVIOUS] = b"".join(authority.previous)
    return data


def fault(data: Mapping[str, bytes]) -> str | None:
    """Say why nobody can sign with a Secret's data, or return None for one that is fit."""
    if not data:
        return "it is empty"
    if wrong := _pair_fault(data, CURRENT):
        return wrong
    if any(key in data for key in FOLLOWING) and (wrong := _pair_fault(data, FOLLOWING)):
        return wrong
    if PREVIOUS in data and _certificates(data[PREVIOUS]) is None:
        return f"{PREVIOUS} holds no readable certificate"
    return None


def parse(data: Mapping[str, bytes]) -> Authority:
    """Return what the data of a fit Secret means."""
    return Authority(
        KeyPair(*(data[key] for key in CURRENT)),
        KeyPair(*(data[key] for key in FOLLOWING)) if FOLLOWING[0] in data else None,
        tuple(_pem(each) for each in _certificates(data.get(PREVIOUS, b"")) or ()),
    )


def ca_bundle(authority: Authority) -> bytes:
    """Return the certificates to trust, as PEM.

    The order is that of creation, so that passing the signature on changes nothing here.
    """
    pems = [authority.current.certificate_pem, *authority.previous]
    if authority.following is not None:
        pems.append(authority.following.certificate_pem)
    found = map(x509.load_pem_x509_certificate, pems)
    return b"".join(pem for _, pem in sorted({(x.not_valid_before_utc, _pem(x)) for x in found}))


def renewal(
    authority: Authority,
    *,
    lifetimes: Lifetimes,
    now: datetime,
    published_since: datetime | None,
) -> Renewal | None:
    """Return the change that is due, or None.

    Args:
        authority: what the Secret holds.
        lifetimes: of what is created now.
        now: the present.
        published_since: since when every registration trusts all that it must, as far as the
            caller has seen; None while one does not.
    """
    return (
        _replace_invalid(authority, lifetimes, now)
        or _replace_follower(authority, lifetimes, now)
        or _pass_on(authority, lifetimes, now, published_since)
        or _announce(authority, lifetimes, now)
        or _forget(authority, now)
    )


def end_of(certificate_pem: bytes) -> datetime:
    """Return when the first certificate of a PEM ends."""
    return x509.load_pem_x509_certificate(certificate_pem).not_valid_after_utc


def created_at(certificate_pem: bytes) -> datetime:
    """Return when the first certificate of a PEM was signed."""
    return x509.load_pem_x509_certificate(certificate_pem).not_valid_before_utc + CLOCK_SKEW


def renew_at(certificate_pem: bytes) -> datetime:
    """Return when two thirds of the life of the first certificate of a PEM are over."""
    created = created_at(certificate_pem)
    return created + (end_of(certificate_pem) - created) * 2 / 3


def _replace_invalid(authority: Authority, lifetimes: Lifetimes, now: datetime) -> Renewal | None:
    """Replace an authority that ended, as after weeks without a replica, or was dated ahead.

    A clock that was ahead when it signed leaves what nobody trusts until then.
    """
    wrong = _validity_fault(authority.current, now)
    if wrong is None:
        return None
    following = authority.following
    if following is None or _validity_fault(following, now):
        return Renewal(f"the authority {wrong}", create(lifetimes, now=now))
    return Renewal(f"the authority {wrong}; the following one signs now", Authority(following))


def _replace_follower(authority: Authority, lifetimes: Lifetimes, now: datetime) -> Renewal | None:
    """Replace a following authority that was dated ahead, once it is needed.

    Not before: to a replica that was held up, every younger one looks as if dated ahead.
    """
    if authority.following is None or now < renew_at(authority.current.certificate_pem):
        return None
    wrong = _validity_fault(authority.following, now)
    if wrong is None:
        return None
    return Renewal(
        f"the following authority {wrong}", replace(authority, following=_created(lifetimes, now))
    )


def _validity_fault(pair: KeyPair, now: datetime) -> str | None:
    found = x509.load_pem_x509_certificate(pair.certificate_pem)
    if now >= found.not_valid_after_utc:
        return f"ended at {_shown(found.not_valid_after_utc)}"
    if now < found.not_valid_before_utc:
        return f"is not valid before {_shown(found.not_valid_before_utc)}: a clock is wrong"
    return None


def _pass_on(
    authority: Authority, lifetimes: Lifetimes, now: datetime, published_since: datetime | None
) -> Renewal | None:
    """Let the following authority sign, and throw the old key away."""
    following = authority.following
    if following is None:
        return None
    is_last_call = now >= end_of(authority.current.certificate_pem) - lifetimes.overlap / 2
    if not is_last_call:
        if published_since is None:
            return None
        trusted_since = max(published_since, created_at(following.certificate_pem))
        if now < trusted_since + lifetimes.overlap:
            return None
    old = authority.current.certificate_pem
    return Renewal(
        "the following authority is trusted for long enough, it signs now",
        Authority(following, previous=(*authority.previous, old)),
    )


def _announce(authority: Authority, lifetimes: Lifetimes, now: datetime) -> Renewal | None:
    """Add a following authority in time."""
    if authority.following is not None or now < renew_at(authority.current.certificate_pem):
        return None
    return Renewal(
        "two thirds of the authority's life are over, another one will follow",
        replace(authority, following=_created(lifetimes, now)),
    )


def _forget(authority: Authority, now: datetime) -> Renewal | None:
    """Trust no longer what ended."""
    alive = tuple(pem for pem in authority.previous if now < end_of(pem))
    if alive == authority.previous:
        return None
    return Renewal("a previous authority ended", replace(authority, previous=alive))


def _pair_fault(data: Mapping[str, bytes], keys: tuple[str, str]) -> str | None:
    if missing := [key for key in keys if not data.get(key)]:
        return f"it lacks {' and '.join(missing)}"
    try:
        check_authority(KeyPair(*(data[key] for key in keys)))
    except CertificateError as error:
        return f"{' and '.join(keys)}: {error}"
    return None


def _created(lifetimes: Lifetimes, now: datetime) -> KeyPair:
    return create_authority(AUTHORITY_NAME, now=now, lifetime=lifetimes.authority)


def _halves(pair: KeyPair) -> tuple[bytes, bytes]:
    return pair.certificate_pem, pair.key_pem


def _certificates(pem: bytes) -> list[x509.Certificate] | None:
    try:
        return x509.load_pem_x509_certificates(pem)
    except UNREADABLE:
        return None


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _shown(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
