"""Facts about what namespaces allow: limits and quotas on resources that are converted. Pure."""

from collections.abc import Iterator
from typing import Final

from hami_dra.kube.limits import limits_of
from hami_dra.migration import Json, Policy
from hami_dra.migration.registration import NAME
from hami_dra.preflight.evidence import Evidence, known
from hami_dra.preflight.fact import Check, Status, Verdict, failed, names, passed, warned
from hami_dra.preflight.registration import other_than_wanted, registered_for_claims
from hami_dra.quota import Quota, read_quota

_INSTALL: Final = "hami-dra install"
_DEFAULTS: Final = ("default", "defaultRequest")


def limit_ranges(evidence: Evidence, policy: Policy) -> Verdict:
    """Have no LimitRange that means something else after a migration."""
    managed = frozenset(policy.converted_names)
    found = known(evidence.limit_ranges)
    demands = {title(item): limits_of(item, managed) for item in found}
    if least := [name for name, limits in demands.items() if limits.minimum]:
        return failed(
            f"{names(least)} set a minimum or a ratio, which no converted pod satisfies",
            expected="no minimum and no ratio of a converted resource",
            fix=f"kubectl -n {least[0].partition('/')[0]} edit limitrange"
            f" {least[0].partition('/')[2]}   # remove the minimum and the ratio",
        )
    if filled := [title(item) for item in found if managed & set(_defaulted(item))]:
        # Where no default is written, the API server copies the maximum into it.
        copied = demands[filled[0]].maximum
        return warned(
            f"{names(filled)} give every container a converted resource by default",
            expected="no default of a converted resource",
            fix=f"kubectl -n {filled[0].partition('/')[0]} edit limitrange"
            f" {filled[0].partition('/')[2]}   # remove the default"
            + (", and the maximum, which becomes one" if copied else ""),
        )
    if capped := [name for name, limits in demands.items() if limits.maximum]:
        return warned(
            f"{names(capped)} set a maximum, which holds back no converted pod",
            expected="a ResourceQuota, which is enforced, in place of the maximum",
            fix=f"kubectl -n {capped[0].partition('/')[0]} edit limitrange"
            f" {capped[0].partition('/')[2]}   # and create a ResourceQuota",
        )
    return passed("no LimitRange names a converted resource")


def resource_quotas(evidence: Evidence, policy: Policy) -> Verdict:
    """Have quotas on converted resources enforced as they are written."""
    verdict = quotas_enforced(evidence, policy)
    told = {title(item): quota.notices for item, quota in _ours(evidence, policy)}
    if verdict.status is not Status.PASS or not any(told.values()):
        return verdict
    name, notices = next((name, notices) for name, notices in told.items() if notices)
    return warned(
        f"{names(name for name in told if told[name])} are not held as they are written:"
        f" {'; '.join(notice.message for notice in notices)}",
        expected="keys of cards, memory or cores, without scopes",
        fix=f"kubectl -n {name.partition('/')[0]} edit resourcequota {name.partition('/')[2]}"
        "   # see .github/QUOTAS.md",
    )


def quotas_enforced(evidence: Evidence, policy: Policy) -> Verdict:
    """Have the keys that can be held enforced, which the API server cannot do any more."""
    found = [title(item) for item, quota in _ours(evidence, policy) if quota.limits]
    if not found:
        return passed("no ResourceQuota names a converted resource")
    expected = f"ValidatingWebhookConfiguration {NAME}, from the policy"
    if (entry := registered_for_claims(evidence)) is None:
        return failed(
            f"{names(found)} name converted resources, and nothing enforces them",
            expected=expected,
            fix=_INSTALL,
        )
    if different := other_than_wanted(entry, policy):
        return failed(
            f"{names(found)} name converted resources, and {names(different)} of the registration"
            " that enforces them are others than the policy's",
            expected=expected,
            fix=f"{_INSTALL}, with --policy FILE when the webhook has one",
        )
    if entry.get("failurePolicy") != "Fail":
        return warned(
            f"{names(found)}, enforced by the webhook, but not while it is away: failurePolicy"
            f" {entry.get('failurePolicy')}",
            expected="Fail",
            fix=f"kubectl patch validatingwebhookconfiguration {NAME} --type=json"
            """ -p '[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Fail"}]'""",
        )
    return passed(f"{names(found)}, enforced by the webhook")


def title(item: Json) -> str:
    """Return `namespace/name`."""
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"


def _defaulted(limit_range: Json) -> Iterator[str]:
    for limit in (limit_range.get("spec") or {}).get("limits") or ():
        for section in _DEFAULTS:
            yield from limit.get(section) or ()


def _ours(evidence: Evidence, policy: Policy) -> Iterator[tuple[Json, Quota]]:
    """Yield the quotas that speak of converted resources."""
    for item in known(evidence.quotas):
        if (quota := read_quota(item, policy)) is not None:
            yield item, quota


CHECKS: Final = (
    Check("limit-ranges", "LimitRanges mean what they meant", limit_ranges),
    Check("resource-quotas", "quotas are enforced", resource_quotas),
)
