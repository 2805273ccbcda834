"""Keep the authority in a Secret, and have every webhook configuration trust it.

Every replica does the same: read, decide, act. There is no leader; a write carries the version that
was read, and who loses a race reads again. The Secret is the truth. What a replica remembers only
fills a hole: a Secret that was deleted or damaged comes back as it was.
"""

import base64
import binascii
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from certs.bundle import (
    Authority,
    Lifetimes,
    Renewal,
    ca_bundle,
    create,
    fault,
    parse,
    renewal,
    secret_data,
)

Json = dict[str, Any]

REGISTRATION: Final = "/apis/admissionregistration.k8s.io/v1"
"""Where webhook configurations are."""

# Each lost race means that another replica got further; more in a row means something else.
_ATTEMPTS: Final = 5

_log = logging.getLogger(__name__)


class Api(Protocol):
    """What is needed of an API server. Anything but the outcomes named here is an exception."""

    async def read(self, path: str) -> Json | None:
        """Return an object, or None where there is none."""

    async def create(self, collection: str, item: Json) -> bool:
        """Create an object; False when there is one already."""

    async def replace(self, path: str, item: Json) -> bool:
        """Replace an object; False when it changed or went since it was read."""


class OvertakenError(Exception):
    """Somebody else changed the objects each time we were about to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where things are.

    Attributes:
        namespace: of the Secret.
        secret: its name.
        mutating: name of the MutatingWebhookConfiguration.
        validating: name of the ValidatingWebhookConfiguration.
    """

    namespace: str
    secret: str
    mutating: str
    validating: str

    @property
    def secrets(self) -> str:
        """The collection of the Secret."""
        return f"/api/v1/namespaces/{self.namespace}/secrets"

    @property
    def configurations(self) -> Mapping[str, str]:
        """The name of each configuration, by its collection."""
        return {
            f"{REGISTRATION}/mutatingwebhookconfigurations": self.mutating,
            f"{REGISTRATION}/validatingwebhookconfigurations": self.validating,
        }


@dataclass(frozen=True, slots=True)
class Ensured:
    """How things stand after a look.

    Attributes:
        authority: what the Secret holds now.
        fault: what was wrong with the Secret before, if anything.
    """

    authority: Authority
    fault: str | None = None


class SecretKeeper:
    """One replica's part in keeping the Secret and the configurations right.

    Attributes:
        known: what the Secret held when it was last fit.
    """

    def __init__(self, api: Api, place: Place, lifetimes: Lifetimes) -> None:
        self.known: Authority | None = None
        self._api = api
        self._place = place
        self._lifetimes = lifetimes
        self._published_since: datetime | None = None

    async def ensure(self, now: datetime) -> Ensured:
        """Look at everything and change what must change.

        Raises:
            OvertakenError: if others were faster every time; look again later.
        """
        for _ in range(_ATTEMPTS):
            if (done := await self._look(now)) is not None:
                return done
        raise OvertakenError(
            f"found {self._place.secret} or a webhook configuration changed by others {_ATTEMPTS}"
            " times in a row, expected other replicas to agree; see who else writes to them"
        )

    async def _look(self, now: datetime) -> Ensured | None:
        """Look once; None when somebody was faster."""
        # Before the Secret: a configuration must never be set back to what an older Secret says.
        configurations = await self._configurations()
        found = await self._api.read(f"{self._place.secrets}/{self._place.secret}")
        wrong = _fault(found)
        if wrong is None:
            authority = parse(_data(found))
            change = self._due(authority, configurations, now)
        else:
            change = Renewal(wrong, self.known or create(self._lifetimes, now=now))
        if change is not None:
            if not await self._write(found, change.authority):
                return None
            authority = change.authority
            _log.info("wrote the Secret %s: %s", self._place.secret, change.reason)
        is_first = found is None and self.known is None
        self.known = authority
        if not await self._publish(configurations, authority):
            return None
        return Ensured(authority, None if is_first else wrong)

    def _due(
        self, authority: Authority, configurations: Mapping[str, Json], now: datetime
    ) -> Renewal | None:
        """Return the change of a fit Secret that is due."""
        bundle = _text(ca_bundle(authority))
        if all(_trusts(each, bundle) for each in configurations.values()):
            self._published_since = self._published_since or now
        else:
            self._published_since = None
        return renewal(
            authority,
            lifetimes=self._lifetimes,
            now=now,
            published_since=self._published_since,
        )

    async def _configurations(self) -> dict[str, Json]:
        """Read the configurations that there are, by path."""
        paths = [f"{where}/{name}" for where, name in self._place.configurations.items()]
        found = [(path, await self._api.read(path)) for path in paths]
        return {path: item for path, item in found if item is not None}

    async def _write(self, found: Json | None, authority: Authority) -> bool:
        """Write the Secret on top of what was found."""
        data = {key: _text(value) for key, value in secret_data(authority).items()}
        if found is not None:
            path = f"{self._place.secrets}/{self._place.secret}"
            return await self._api.replace(path, {**found, "data": data})
        metadata = {
            "name": self._place.secret,
            "namespace": self._place.namespace,
            "labels": {"app.kubernetes.io/managed-by": "hami-dra"},
        }
        secret = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque"}
        return await self._api.create(
            self._place.secrets, {**secret, "metadata": metadata, "data": data}
        )

    async def _publish(self, configurations: Mapping[str, Json], authority: Authority) -> bool:
        """Have all configurations trust the authority."""
        bundle = _text(ca_bundle(authority))
        for path, found in configurations.items():
            if _trusts(found, bundle):
                continue
            self._published_since = None
            if not await self._api.replace(path, _trusting(found, bundle)):
                return False
            _log.info("wrote the caBundle of %s: it was another one", path)
        return True


def _fault(found: Json | None) -> str | None:
    """Say why nobody can sign with the Secret, or return None for one that is fit."""
    if found is None:
        return "it was not there"
    try:
        return fault(_data(found))
    except (binascii.Error, TypeError, AttributeError) as error:
        return f"its data is not base64 ({error})"


def _data(secret: Json | None) -> dict[str, bytes]:
    data = (secret or {}).get("data") or {}
    return {key: base64.b64decode(value, validate=True) for key, value in data.items()}


def _trusts(configuration: Json, bundle: str) -> bool:
    return all(each["clientConfig"].get("caBundle") == bundle for each in _webhooks(configuration))


def _trusting(configuration: Json, bundle: str) -> Json:
    webhooks = [
        {**each, "clientConfig": {**each["clientConfig"], "caBundle": bundle}}
        for each in _webhooks(configuration)
    ]
    return {**configuration, "webhooks": webhooks}


def _webhooks(configuration: Json) -> Sequence[Json]:
    return configuration.get("webhooks") or ()


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
