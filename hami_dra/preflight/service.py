"""Facts about the running webhook: does it answer, is it trusted, is it well? Pure."""

from datetime import datetime, timedelta
from typing import Final

from cryptography import x509

from hami_dra.migration import Policy
from hami_dra.migration.registration import NAME, SYSTEM_NAMESPACE
from hami_dra.preflight.bundle import BundleError, authorities
from hami_dra.preflight.evidence import Evidence, Hidden, known
from hami_dra.preflight.fact import Check, Verdict, failed, passed, warned
from hami_dra.preflight.registration import registered

_AUTHORITY_LEFT: Final = timedelta(days=14)
_LEAF_LEFT: Final = timedelta(days=2)

_PODS: Final = f"kubectl -n {SYSTEM_NAMESPACE} get pods; kubectl -n {SYSTEM_NAMESPACE} logs"
_PODS_FIX: Final = f"{_PODS} deployment/{NAME}"
_CERTIFICATE_FIX: Final = (
    f"hami-dra-certs check --connect HOST:PORT --bundle FILE --name {NAME}.{SYSTEM_NAMESPACE}.svc"
    " tells what does not fit; with cert-manager: kubectl get certificate -n"
    f" {SYSTEM_NAMESPACE}"
)

# What the API server says, and what to do about it; the first that fits.
_REMEDIES: Final = (
    ("x509", _CERTIFICATE_FIX),
    ("hami-dra-guard", "hami-dra install"),
    ("failed calling webhook", _PODS_FIX),
    ("quota", "choose a namespace with room: --namespace NAME"),
)


def webhook_answers(evidence: Evidence, _policy: Policy) -> Verdict:
    """Have a legacy pod converted, on the way that every pod takes: through the API server."""
    probe = known(evidence.pod)
    expected = "a pod that asks for a card comes back with a claim"
    if probe.stored is None:
        return failed(
            f"a dry run of such a pod was refused: {probe.refusal}",
            expected=expected,
            fix=_remedy(probe.refusal),
        )
    if probe.stored["spec"].get("resourceClaims"):
        return passed("a dry run of a legacy pod came back with a claim")
    return failed(
        "a dry run of a legacy pod came back as it was",
        expected=expected,
        fix="see webhook-registration and webhook-scope; a namespace with the label"
        " hami.io/webhook=ignore is left alone: try another with --namespace",
    )


def claims_admitted(evidence: Evidence, _policy: Policy) -> Verdict:
    """Have claims admitted: the webhook is asked about each, by a registration of its own."""
    probe = known(evidence.claim)
    if probe.stored is not None:
        return passed("a dry run of a claim was admitted")
    return failed(
        f"a dry run of a claim was refused: {probe.refusal}",
        expected="a claim; without one a pod waits for ever",
        fix=_remedy(probe.refusal),
    )


def webhook_certificate(evidence: Evidence, _policy: Policy) -> Verdict:
    """Have authorities registered that live, and a certificate served that they signed."""
    entry = registered(evidence)
    if entry is None:
        return failed(
            "the webhook is not registered", expected="a caBundle", fix="hami-dra install"
        )
    try:
        trusted = authorities(entry.get("clientConfig") or {})
    except BundleError as error:
        return failed(
            str(error),
            expected="the authority that signed the webhook's certificate",
            fix="run the webhook with --certificate-mode secret, which keeps it right, or see"
            " cert-manager's cainjector",
        )
    now = evidence.now
    end = max(authority.not_valid_after_utc for authority in trusted)
    if end <= now:
        return failed(
            f"the last registered authority ended on {_day(end)}",
            expected="an authority that is valid",
            fix=_CERTIFICATE_FIX,
        )
    return _served_verdict(evidence, now) or _bundle_verdict(evidence, end, now)


def webhook_health(evidence: Evidence, _policy: Policy) -> Verdict:
    """Have the replica that answers say that nothing is missing or degraded."""
    if registered(evidence) is None:
        return failed(
            "the webhook is not registered", expected="an answer of /readyz", fix="hami-dra install"
        )
    ready = known(evidence.served).ready
    if ready is None:
        return failed(
            "the webhook does not say whether it is ready",
            expected="an answer of /readyz",
            fix=_PODS_FIX,
        )
    if missing := ready.get("missing"):
        return failed(
            f"not ready, waiting for: {', '.join(missing)}", expected="readiness", fix=_PODS_FIX
        )
    if degraded := ready.get("degraded"):
        return warned(
            "; ".join(f"{name}: {reason}" for name, reason in sorted(degraded.items())),
            expected="nothing that needs a person",
            fix=_PODS_FIX,
        )
    return passed("ready, and nothing needs a person")


def _remedy(refusal: str) -> str:
    fixes = [fix for words, fix in _REMEDIES if words in refusal]
    return (*fixes, "do what the message says")[0]


def _served_verdict(evidence: Evidence, now: datetime) -> Verdict | None:
    """Judge what is served, where it can be seen from here."""
    if isinstance(evidence.served, Hidden) or not evidence.served.certificate_pem:
        return None
    served = evidence.served
    end = x509.load_pem_x509_certificate(served.certificate_pem).not_valid_after_utc
    if end <= now:
        found = f"the served certificate ended on {_day(end)}"
    elif served.distrust:
        found = f"the registered caBundle does not fit what is served: {served.distrust}"
    elif end - now < _LEAF_LEFT:
        return warned(
            f"the served certificate ends on {_day(end)}",
            expected="a certificate that was renewed in time",
            fix=_PODS_FIX,
        )
    else:
        return None
    return failed(
        found, expected="a certificate that the caBundle makes trusted", fix=_CERTIFICATE_FIX
    )


def _bundle_verdict(evidence: Evidence, end: datetime, now: datetime) -> Verdict:
    if end - now < _AUTHORITY_LEFT:
        return warned(
            f"the last registered authority ends on {_day(end)}",
            expected=f"one that lives for {_AUTHORITY_LEFT.days} days more",
            fix=_CERTIFICATE_FIX,
        )
    found = f"authorities registered until {_day(end)}"
    if isinstance(evidence.served, Hidden) or not evidence.served.certificate_pem:
        return passed(f"{found}; whether one signed what is served, webhook-answers tells")
    leaf = x509.load_pem_x509_certificate(evidence.served.certificate_pem)
    return passed(f"{found}, certificate until {_day(leaf.not_valid_after_utc)}, and they fit")


def _day(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")


CHECKS: Final = (
    Check("webhook-answers", "the API server reaches the webhook", webhook_answers),
    Check("claims-admitted", "claims are admitted", claims_admitted),
    Check("webhook-certificate", "the webhook is trusted", webhook_certificate),
    Check("webhook-health", "the webhook is well", webhook_health),
)
