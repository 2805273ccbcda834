"""Know which resources the LimitRanges of a namespace insist on (ruling 20).

Only names are kept, and only those that a migration takes from pods.
"""

from collections.abc import Collection, Iterable
from typing import Final

from hami_dra.kube.backoff import Backoff
from hami_dra.kube.cache import Key, WatchCache, key_of
from hami_dra.kube.session import Session
from hami_dra.migration import Json, NamespaceLimits
from hami_dra.migration.quantity import QuantityError, parse

_PATH: Final = "/api/v1/limitranges"
_NOTHING: Final = NamespaceLimits()


class ClusterLimits:
    """What the LimitRanges of each namespace demand of managed resources.

    Args:
        session: the API server.
        names: the managed resources.
        backoff: how long to wait after each failure.
    """

    def __init__(
        self, session: Session, names: Collection[str], *, backoff: Backoff | None = None
    ) -> None:
        self._by_namespace: dict[str, NamespaceLimits] | None = None
        self._cache: WatchCache[tuple[Key, NamespaceLimits]] = WatchCache(
            session,
            _PATH,
            project=lambda item: (key_of(item), limits_of(item, frozenset(names))),
            changed=self._forget,
            backoff=backoff,
        )

    @property
    def is_synced(self) -> bool:
        """Tell whether the cluster's LimitRanges were read once."""
        return self._cache.is_synced

    async def run(self) -> None:
        """Keep the cache current until cancelled."""
        await self._cache.run()

    def current(self, namespace: str) -> NamespaceLimits:
        """Return what is demanded in a namespace now."""
        if self._by_namespace is None:
            self._by_namespace = merge(self._cache.values())
        return self._by_namespace.get(namespace, _NOTHING)

    def _forget(self) -> None:
        self._by_namespace = None


def limits_of(item: Json, names: frozenset[str]) -> NamespaceLimits:
    """Return what one LimitRange demands of these resources."""
    maximum, minimum = set[str](), set[str]()
    for limit in (item.get("spec") or {}).get("limits") or ():
        maximum |= names & set(limit.get("max") or ())
        minimum |= {name for name, least in (limit.get("min") or {}).items() if _is_some(least)}
        # A ratio cannot be told of nothing, so the API server refuses a pod without an amount.
        minimum |= set(limit.get("maxLimitRequestRatio") or ())
    return NamespaceLimits(maximum=frozenset(maximum), minimum=names & minimum)


def _is_some(amount: object) -> bool:
    try:
        return parse(amount).nanos > 0
    except QuantityError:
        return False


def merge(found: Iterable[tuple[Key, NamespaceLimits]]) -> dict[str, NamespaceLimits]:
    """Return what all LimitRanges of each namespace demand together."""
    merged: dict[str, NamespaceLimits] = {}
    for (namespace, _), limits in found:
        before = merged.get(namespace, _NOTHING)
        merged[namespace] = NamespaceLimits(
            maximum=before.maximum | limits.maximum, minimum=before.minimum | limits.minimum
        )
    return merged
