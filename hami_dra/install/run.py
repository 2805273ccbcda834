"""Install and remove from a command that does not await; imported by those commands alone."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hami_dra.install.cluster import (
    ElsewhereError,
    FieldsTakenError,
    Installer,
    InUseError,
    NotReadyError,
)
from hami_dra.install.order import Stages
from hami_dra.kube.errors import ApiError, ConfigurationError, UnreachableError
from hami_dra.kube.served import UnknownKindError
from hami_dra.kube.session import Session
from hami_dra.migration import Json

ERRORS: Final = (
    ApiError,
    ConfigurationError,
    ElsewhereError,
    FieldsTakenError,
    InUseError,
    UnknownKindError,
    UnreachableError,
)
"""What can go wrong, apart from something that does not get ready."""

__all__ = ["ERRORS", "NotReadyError", "Place", "install", "remove"]


@dataclass(frozen=True, slots=True)
class Place:
    """Which cluster, and how patient to be.

    Attributes:
        context: a context of the kubeconfig; None for its current one.
        kubeconfig: a file; None to search as kubectl does.
        timeout_s: how long to wait for one object that gets no further; None to wait for nothing.
    """

    context: str | None
    kubeconfig: Path | None
    timeout_s: float | None


def install(place: Place, stages: Stages, obsolete: Sequence[Json], *, force: bool) -> None:
    """Apply everything; see `Installer.install`."""
    _do(place, lambda installer: installer.install(stages, obsolete), force=force)


def remove(place: Place, stages: Stages, extra: Sequence[Json], namespace: str) -> None:
    """Remove everything; see `Installer.remove`."""
    _do(place, lambda installer: installer.remove(stages, extra, namespace), force=False)


def _do(place: Place, act: Callable[[Installer], Awaitable[None]], *, force: bool) -> None:
    async def connected() -> None:
        async with await Session.connect(place.kubeconfig, place.context) as session:
            await act(
                Installer(session, _say, _note, timeout_s=place.timeout_s, force=force),
            )

    asyncio.run(connected())


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _note(line: str) -> None:
    sys.stderr.write(f"{line}\n")
