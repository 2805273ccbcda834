"""Learn which card sizes a cluster has, so that percentages become amounts (ruling 7).

Only aggregates are kept: a large cluster has thousands of slices, and a size is one number.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from hami_dra.kube.backoff import Backoff
from hami_dra.kube.cache import WatchCache
from hami_dra.kube.session import Session
from hami_dra.migration import Cards, Json
from hami_dra.migration.quantity import NANO, QuantityError, parse

_PATH: Final = "/apis/resource.k8s.io/v1/resourceslices"
_MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class Sizes:
    """What one ResourceSlice says of card sizes.

    Attributes:
        pool: the slice's pool, of which only the newest generation counts.
        generation: the pool's generation that the slice belongs to.
        memory_mib: the sizes of its shareable cards.
    """

    pool: str
    generation: int
    memory_mib: frozenset[int]


class ClusterCards:
    """The sizes of shareable cards, from the ResourceSlices of one driver.

    Args:
        session: the API server.
        driver: the DRA driver whose slices count.
        card_type: value of the `type` attribute of a shareable card.
        backoff: how long to wait after each failure.
    """

    def __init__(
        self,
        session: Session,
        driver: str,
        *,
        card_type: str = "hami-gpu",
        backoff: Backoff | None = None,
    ) -> None:
        self._current: Cards | None = None
        self._cache = WatchCache(
            session,
            _PATH,
            query={"fieldSelector": f"spec.driver={driver}"},
            project=lambda item: sizes_of(item, driver=driver, card_type=card_type),
            changed=self._forget,
            backoff=backoff,
        )

    @property
    def is_synced(self) -> bool:
        """Tell whether the cluster's slices were read once."""
        return self._cache.is_synced

    async def synced(self) -> None:
        """Wait until the cluster's slices were read once."""
        await self._cache.synced()

    async def run(self) -> None:
        """Keep the cache current until cancelled."""
        await self._cache.run()

    def current(self) -> Cards:
        """Return the sizes that the cluster shows now."""
        if self._current is None:
            self._current = _merge(self._cache.values())
        return self._current

    def _forget(self) -> None:
        self._current = None


def sizes_of(item: Json, *, driver: str, card_type: str) -> Sizes:
    """Reduce a ResourceSlice to its card sizes."""
    spec = item["spec"]
    found = (
        _memory_mib(device, driver)
        for device in spec.get("devices") or ()
        if device.get("allowMultipleAllocations") and _type(device, driver) == card_type
    )
    return Sizes(
        pool=spec["pool"]["name"],
        generation=spec["pool"]["generation"],
        memory_mib=frozenset(size for size in found if size),
    )


def _type(device: Json, driver: str) -> str | None:
    attributes = device.get("attributes") or {}
    attribute = attributes.get("type") or attributes.get(f"{driver}/type") or {}
    found = attribute.get("string")
    return found if isinstance(found, str) else None


def _memory_mib(device: Json, driver: str) -> int:
    capacity = device.get("capacity") or {}
    memory = capacity.get("memory") or capacity.get(f"{driver}/memory") or {}
    try:
        return parse(memory.get("value")).nanos // (NANO * _MIB)
    except QuantityError:
        return 0  # the API server admits only quantities; a card without a size offers no share


def _merge(slices: Collection[Sizes]) -> Cards:
    newest: dict[str, int] = {}
    for one in slices:
        newest[one.pool] = max(one.generation, newest.get(one.pool, 0))
    return Cards(
        memory_mib=frozenset().union(
            *(one.memory_mib for one in slices if one.generation == newest[one.pool])
        )
    )
