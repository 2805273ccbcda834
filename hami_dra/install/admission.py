"""What the API server does for us, made from a policy: registrations and guard.

All of it must fit the policy that the webhook reads; the policy's digest tells whether it does.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hami_dra.migration import Json, Policy
from hami_dra.migration.registration import (
    NAME,
    SYSTEM_NAMESPACE,
    claim_webhook_configuration,
    guard,
    webhook_configuration,
)

PART_OF: Final = {"app.kubernetes.io/part-of": "hami-dra"}
"""Label of everything that is installed."""


@dataclass(frozen=True, slots=True)
class PolicyText:
    """A policy as it was written, for whoever reads the ConfigMap, and as it is understood.

    Attributes:
        text: a policy file.
        policy: what it says.
    """

    text: str
    policy: Policy

    @property
    def digest(self) -> str:
        """The SHA-256 of the text, in hexadecimal; pods with another one are replaced."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def registrations(policy: Policy) -> list[Json]:
    """Return the webhook configurations; their caBundle is somebody else's to write."""
    return [
        _labelled(webhook_configuration(policy, _service("/mutate"))),
        _labelled(claim_webhook_configuration(policy, _service("/validate"))),
    ]


def guards(policy: Policy) -> list[Json]:
    """Return the guard and its binding (ruling 27)."""
    return [_labelled(each) for each in guard(policy)]


def admission(policy: Policy) -> list[Json]:
    """Return everything that has to fit the policy, in the order of installation."""
    return [*registrations(policy), *guards(policy)]


def chart_text(policy: PolicyText, write: Callable[[Json], str]) -> str:
    """Return what the chart takes as its value `admission`, beside the policy that it fits.

    Args:
        policy: the policy.
        write: writes an object as YAML.
    """
    documents = "---\n".join(write(each) for each in admission(policy.policy))
    return f"# policy-sha256: {policy.digest}\n{documents}"


def _service(path: str) -> Json:
    """Return how the API server reaches a page of the webhook."""
    service = {"name": NAME, "namespace": SYSTEM_NAMESPACE, "path": path, "port": 443}
    return {"service": service}


def _labelled(item: Json) -> Json:
    """Return an object with the label of everything that is installed."""
    metadata = item["metadata"]
    return {**item, "metadata": {**metadata, "labels": {**metadata["labels"], **PART_OF}}}
