"""Learn which kinds of cards a cluster has, so that percentages become amounts (ruling 7).

Only aggregates are kept: a large cluster has thousands of slices, and a few kinds of cards.
"""

from typing import Final

from hami_dra.kube.backoff import Backoff
from hami_dra.kube.cache import WatchCache
from hami_dra.kube.session import Session
from hami_dra.migration import Cards
from hami_dra.migration.inventory import SHAREABLE, cards_of, sizes_of

_PATH: Final = "/apis/resource.k8s.io/v1/resourceslices"


class ClusterCards:
    """The kinds of shareable cards, from the ResourceSlices of one driver.

    Args:
        session: the API server.
        driver: the DRA driver whose slices count.
        model: the attribute with a card's raw model name.
        card_type: value of the `type` attribute of a shareable card.
        backoff: how long to wait after each failure.
    """

    def __init__(
        self,
        session: Session,
        driver: str,
        model: str = "productName",
        *,
        card_type: str = SHAREABLE,
        backoff: Backoff | None = None,
    ) -> None:
        self._current: Cards | None = None
        self._cache = WatchCache(
            session,
            _PATH,
            query={"fieldSelector": f"spec.driver={driver}"},
            project=lambda item: sizes_of(item, driver=driver, card_type=card_type, model=model),
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
        """Return the cards that the cluster shows now."""
        if self._current is None:
            self._current = cards_of(self._cache.values())
        return self._current

    def _forget(self) -> None:
        self._current = None
