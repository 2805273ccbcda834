"""Facts about how the API server is told to call the webhook, and about the guard. Pure.

What is right is generated from the same policy as the registration itself.
"""

from collections.abc import Iterator
from typing import Final

from hami_dra.migration import Json, Policy
from hami_dra.migration.registration import (
    GUARD_NAME,
    NAME,
    claim_webhook_configuration,
    guard,
    webhook_configuration,
)
from hami_dra.preflight.evidence import Evidence, known
from hami_dra.preflight.fact import Check, Verdict, failed, names, passed, warned

_REGISTER: Final = "hami-dra install"
_SHORTEST_S: Final = 3  # the first pod of a shape costs a write
_LONGEST_S: Final = 10  # an API server's calls to us hold seats of its own meanwhile

# Without these, pods that need us would not come, or pods that do not would.
_DECISIVE: Final = ("matchConditions", "rules")
_WISE: Final = (
    "namespaceSelector",
    "objectSelector",
    "sideEffects",
    "reinvocationPolicy",
    "admissionReviewVersions",
)
_DECISIVE_FOR_CLAIMS: Final = ("matchConditions", "namespaceSelector", "rules")


def registered(evidence: Evidence) -> Json | None:
    """Return our entry of the registration; None without one."""
    for configuration in known(evidence.mutating):
        if configuration["metadata"]["name"] == NAME:
            for entry in configuration.get("webhooks") or ():
                found: Json = entry
                return found
    return None


def registered_for_claims(evidence: Evidence) -> Json | None:
    """Return our entry of the registration by which claims are held to quotas; None without one."""
    entries = (known(evidence.validating) or {}).get("webhooks") or ()
    return next(iter(entries), None)


def other_than_wanted(entry: Json, policy: Policy) -> list[str]:
    """Return what of that entry calls for other claims than the policy's."""
    [wanted] = claim_webhook_configuration(policy, {})["webhooks"]
    return [key for key in _DECISIVE_FOR_CLAIMS if entry.get(key) != wanted[key]]


def webhook_registration(evidence: Evidence, _policy: Policy) -> Verdict:
    """Have the API server know the webhook."""
    if registered(evidence) is not None:
        return passed(NAME)
    return failed(
        "the webhook is not registered: GPU pods are not converted",
        expected=f"MutatingWebhookConfiguration {NAME}",
        fix=_REGISTER,
    )


def webhook_scope(evidence: Evidence, policy: Policy) -> Verdict:
    """Have it called for the pods that the policy concerns, and for no others."""
    entry = registered(evidence)
    if entry is None:
        return _no_registration()
    [wanted] = webhook_configuration(policy, {})["webhooks"]
    different = [key for key in (*_DECISIVE, *_WISE) if entry.get(key) != wanted[key]]
    if not different:
        return passed("called for the creation of pods that ask for a managed resource")
    say = failed if set(different) & set(_DECISIVE) else warned
    return say(
        f"{names(different)} of the registration are others than the policy's",
        expected="a registration generated from the policy that the webhook reads",
        fix=f"{_REGISTER}, with --policy FILE when the webhook has one",
    )


def webhook_failure_policy(evidence: Evidence, policy: Policy) -> Verdict:
    """Have pods wait for the webhook rather than go past it."""
    entry = registered(evidence)
    if entry is None:
        return _no_registration()
    if entry.get("failurePolicy") == "Fail":
        return passed("Fail")
    fix = (
        f"kubectl patch mutatingwebhookconfiguration {NAME} --type=json"
        """ -p '[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Fail"}]'"""
    )
    found = f"{entry.get('failurePolicy')}: while the webhook is away, "
    if not guard_fault(evidence, policy):
        return warned(f"{found}the guard alone refuses GPU pods", expected="Fail", fix=fix)
    return failed(f"{found}GPU pods go past it unconverted", expected="Fail", fix=fix)


def webhook_timeout(evidence: Evidence, _policy: Policy) -> Verdict:
    """Have the API server wait long enough for a write, and not for ever."""
    entry = registered(evidence)
    if entry is None:
        return _no_registration()
    seconds = entry.get("timeoutSeconds", 10)
    if _SHORTEST_S <= seconds <= _LONGEST_S:
        return passed(f"{seconds} s")
    return warned(
        f"{seconds} s",
        expected=f"{_SHORTEST_S} to {_LONGEST_S} s",
        fix=f"kubectl patch mutatingwebhookconfiguration {NAME} --type=json"
        """ -p '[{"op":"replace","path":"/webhooks/0/timeoutSeconds","value":5}]'""",
    )


def webhook_order(evidence: Evidence, policy: Policy) -> Verdict:
    """Have what other webhooks add after us converted, or refused by the guard.

    The API server calls webhooks in the order of their configurations' names.
    """
    entry = registered(evidence)
    if entry is None:
        return _no_registration()
    later = sorted(name for name in _callers_for_pods(evidence) if name > NAME)
    if not later:
        return passed("no other webhook changes pods after ours")
    if entry.get("reinvocationPolicy") != "IfNeeded":
        return warned(
            f"{names(later)} change pods after ours, which is not called again",
            expected="reinvocationPolicy IfNeeded",
            fix=_REGISTER,
        )
    if guard_fault(evidence, policy):
        return warned(
            f"{names(later)} change pods after ours; cards that they add to a pod without any"
            " are not noticed",
            expected=f"the guard {GUARD_NAME}, which refuses such pods",
            fix=_REGISTER,
        )
    return passed(f"{names(later)} come after ours, which is called again")


def guard_present(evidence: Evidence, policy: Policy) -> Verdict:
    """Have the API server itself refuse pods that came past the webhook (ruling 27)."""
    if fault := guard_fault(evidence, policy):
        return failed(
            fault,
            expected=f"ValidatingAdmissionPolicy {GUARD_NAME} and its binding, from the policy",
            fix=f"{_REGISTER}, with --policy FILE when the webhook has one",
        )
    return passed(f"{GUARD_NAME} refuses pods that came past the webhook")


def guard_fault(evidence: Evidence, policy: Policy) -> str:
    """Say why the guard does not guard; empty when it does."""
    found, binding = known(evidence.guard), known(evidence.guard_binding)
    if found is None:
        return "there is no guard"
    if binding is None:
        return "the guard has no binding, so it does nothing"
    if "Deny" not in binding["spec"].get("validationActions", ()):
        return "the guard's binding does not deny"
    wanted, wanted_binding = guard(policy)
    for key in ("validations", "matchConditions"):
        if not _contains(found["spec"].get(key), wanted["spec"][key]):
            return f"{key} of the guard are others than the policy's"
    if binding["spec"].get("policyName") != wanted_binding["spec"]["policyName"]:
        return "the guard's binding is for another policy"
    return ""


def _contains(found: object, wanted: object) -> bool:
    """Compare, whatever the API server added by default."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(key in found and _contains(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list) and isinstance(found, list):
        pairs = zip(found, wanted, strict=False)
        return len(found) == len(wanted) and all(_contains(*pair) for pair in pairs)
    return found == wanted


def _callers_for_pods(evidence: Evidence) -> Iterator[str]:
    """Yield the configurations that are called for the creation of pods."""
    for configuration in known(evidence.mutating):
        for entry in configuration.get("webhooks") or ():
            if any(_is_for_pods(rule) for rule in entry.get("rules") or ()):
                yield configuration["metadata"]["name"]


def _is_for_pods(rule: Json) -> bool:
    return (
        bool({"", "*"} & set(rule.get("apiGroups") or ()))
        and bool({"pods", "*", "*/*"} & set(rule.get("resources") or ()))
        and bool({"CREATE", "*"} & set(rule.get("operations") or ()))
    )


def _no_registration() -> Verdict:
    return failed(
        "the webhook is not registered",
        expected=f"MutatingWebhookConfiguration {NAME}",
        fix=_REGISTER,
    )


CHECKS: Final = (
    Check("webhook-registration", "the API server knows the webhook", webhook_registration),
    Check("webhook-scope", "the right pods reach the webhook", webhook_scope),
    Check(
        "webhook-failure-policy", "no pod goes past a webhook that is away", webhook_failure_policy
    ),
    Check("webhook-timeout", "the API server waits long enough", webhook_timeout),
    Check("webhook-order", "what other webhooks add is seen", webhook_order),
    Check("guard", "the guard refuses what came past the webhook", guard_present),
)
