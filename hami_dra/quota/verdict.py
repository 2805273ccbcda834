"""Judge: whether something still fits into the quotas of a namespace, and what to say if not."""

from collections.abc import Iterable, Iterator

from hami_dra.quota.amounts import Amounts
from hami_dra.quota.limit import Limit, Quota


def exceeded(quotas: Iterable[Quota], used: Amounts, asked: Amounts) -> str:
    """Return why what is asked does not fit, in the API server's own words; empty if it fits.

    As there, only what is asked for is judged: who asks for no cores is not stopped by a limit on
    cores that others exceed.
    """
    return "; ".join(said for quota in quotas if (said := " and ".join(_said(quota, used, asked))))


def _said(quota: Quota, used: Amounts, asked: Amounts) -> Iterator[str]:
    over: list[Limit] = []
    for limit in quota.limits:
        resource = limit.meaning.resource
        before, more = used.get(resource, 0), asked.get(resource, 0)
        if more == 0:
            continue
        if before is None or more is None:
            yield (
                f"quota {quota.name} limits {limit.key}, and a whole card cannot be counted while"
                " no ResourceSlice shows the size of one: wait for nodes with cards, or ask for an"
                " amount of memory"
            )
        elif before + more > limit.hard:
            over.append(limit)
    if over:
        requested, taken, limited = (
            ",".join(f"{limit.key}={amount} {limit.meaning.unit}" for limit, amount in pairs)
            for pairs in (
                [(limit, asked.get(limit.meaning.resource, 0)) for limit in over],
                [(limit, used.get(limit.meaning.resource, 0)) for limit in over],
                [(limit, limit.hard) for limit in over],
            )
        )
        yield (
            f"exceeded quota: {quota.name}, requested: {requested}, used: {taken},"
            f" limited: {limited}"
        )
