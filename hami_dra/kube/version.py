"""Know the API server's version, which decides the form of some claims (ruling 10).

It is asked again now and then, because control planes are upgraded under running clients.
"""

import asyncio
import logging
from typing import Final

from hami_dra.kube.backoff import Backoff
from hami_dra.kube.errors import ApiError, UnreachableError
from hami_dra.kube.session import Session

_PERIOD_S: Final = 300.0

_log = logging.getLogger(__name__)


class ServerVersion:
    """The last version that the API server told.

    Attributes:
        current: such as (1, 37); None until the first answer.
    """

    def __init__(
        self, session: Session, *, period_s: float = _PERIOD_S, backoff: Backoff | None = None
    ) -> None:
        self.current: tuple[int, int] | None = None
        self._session = session
        self._period_s = period_s
        self._backoff = backoff or Backoff()

    async def run(self) -> None:
        """Keep the version current until cancelled."""
        while True:
            try:
                self.current = await self._session.version()
            except (ApiError, UnreachableError) as error:
                _log.warning("could not learn the API server's version: %s", error)
                await self._backoff.wait()
            else:
                self._backoff.reset()
                await asyncio.sleep(self._period_s)
