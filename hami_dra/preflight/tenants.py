"""Facts about what namespaces allow: limits and quotas on resources that are converted. Pure."""

from collections.abc import Iterator
from typing import Final

from hami_dra.kube.limits import limits_of
from hami_dra.migration import Json, Policy
from hami_dra.migration.registration import NAME
from hami_dra.preflight.evidence import Evidence, known
from hami_dra.preflight.fact import Check, Verdict, failed, names, passed, warned

_DEFAULTS: Final = ("default", "defaultRequest")


def limit_ranges(evidence: Evidence, policy: Policy) -> Verdict:
    """Have no LimitRange that means something else after a migration."""
    managed = frozenset(policy.managed_names)
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
    """Have quotas on converted resources enforced, which the API server cannot do any more."""
    found = [title(item) for item in known(evidence.quotas) if _is_ours(item, policy)]
    if not found:
        return passed("no ResourceQuota names a converted resource")
    if known(evidence.validating) is not None:
        return passed(f"{names(found)}, enforced by the webhook")
    return failed(
        f"{names(found)} name converted resources, and nothing enforces them",
        expected=f"ValidatingWebhookConfiguration {NAME}",
        fix="hami-dra install",
    )


def title(item: Json) -> str:
    """Return `namespace/name`."""
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"


def _defaulted(limit_range: Json) -> Iterator[str]:
    for limit in (limit_range.get("spec") or {}).get("limits") or ():
        for section in _DEFAULTS:
            yield from limit.get(section) or ()


def _is_ours(quota: Json, policy: Policy) -> bool:
    managed = set(policy.managed_names)
    keys = ((quota.get("spec") or {}).get("hard") or {}).keys()
    return any(key.removeprefix("requests.").removeprefix("limits.") in managed for key in keys)


CHECKS: Final = (
    Check("limit-ranges", "LimitRanges mean what they meant", limit_ranges),
    Check("resource-quotas", "quotas are enforced", resource_quotas),
)
