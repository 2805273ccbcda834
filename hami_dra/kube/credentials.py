"""Where the API server is and who we are there; and staying that person for months.

The client library refreshes in-cluster tokens itself, but reads a kubeconfig only once. Tokens of
exec plugins expire within the hour, so a kubeconfig is read again through the same hook here.
"""

import asyncio
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

from hami_dra.kube.errors import ConfigurationError

_REREAD_AFTER_S = 60.0  # what the library uses for service account tokens
_LONGEST = 300  # of what the library says of a file, which may hold anything
_POOL_SIZE = 256  # above any burst of admissions; client-side limits throttle first (ruling 32)


@dataclass(frozen=True, slots=True)
class Source:
    """Where the description of the cluster is read from.

    Attributes:
        kubeconfig: one path or several joined by colons; empty means the pod's service account.
    """

    kubeconfig: str

    def __str__(self) -> str:
        """Render for an error message."""
        return self.kubeconfig or "the pod's service account"


def locate(
    kubeconfig: Path | None,
    context: str | None,
    *,
    environ: Mapping[str, str],
    home: Path,
) -> Source:
    """Choose the source as kubectl does, but in a pod prefer the pod's own account to a home.

    Where KUBECONFIG names files that are gone, the home is not meant: its cluster is another one.

    Raises:
        ConfigurationError: if nothing applies; the message lists what was tried.
    """
    if kubeconfig is not None:
        if trouble := _trouble(kubeconfig):
            raise ConfigurationError(f"no kubeconfig at {kubeconfig}: {trouble}")
        return Source(str(kubeconfig))
    named = environ.get("KUBECONFIG", "")
    if not all(_trouble(Path(path).expanduser()) for path in named.split(":") if path):
        return Source(named)
    if environ.get("KUBERNETES_SERVICE_HOST") and context is None:
        return Source("")
    default = home / ".kube" / "config"
    if not named and not _trouble(default):
        return Source(str(default))
    raise ConfigurationError(
        "found no cluster to talk to; tried: --kubeconfig (not given), KUBECONFIG"
        f" ({f'{named}, no file that can be read' if named else 'not set'}), a pod's service"
        " account (no KUBERNETES_SERVICE_HOST in the environment, or a context was named),"
        f" {default} ({'not asked where KUBECONFIG is set' if named else 'no such file'})",
    )


def _trouble(path: Path) -> str:
    """Say why a path is no file that could be read; empty for one that is."""
    try:
        is_file = stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return "the file does not exist"
    except OSError as error:
        return error.strerror or str(error)
    return "" if is_file else "it is no file"


async def load(source: Source, context: str | None) -> Any:  # noqa: ANN401 - untyped client library
    """Read the source into a client configuration that keeps its credentials fresh.

    Raises:
        ConfigurationError: if the source is damaged or incomplete.
    """
    configuration = Configuration(connection_pool_maxsize=_POOL_SIZE)
    try:
        if not source.kubeconfig:
            load_incluster_config(configuration)
            return configuration
        loader = await load_kube_config(
            source.kubeconfig,
            context,
            configuration,
            persist_config=False,  # another program's file is not ours to write
        )
    except Exception as error:  # the library raises whatever a damaged file provokes
        raise ConfigurationError(f"could not use {source}: {_words(error, context)}") from error
    if _lacks_credentials(loader):
        raise ConfigurationError(
            f"could not use {source}: the user's exec plugin gave no credentials; what it said"
            " stands above, and kubectl tells the same"
        )
    configuration.refresh_api_key_hook = _Reread(loader.load_and_set)
    return configuration


def _words(error: Exception, context: str | None) -> str:
    """Say in one line what the library found wrong with a kubeconfig."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, UnicodeError):
        return "found bytes that are not UTF-8, expected a kubeconfig"
    said = " ".join(str(error).split())[:_LONGEST]
    if isinstance(error, ConfigException):
        is_missing = context is not None and said.endswith("/contexts list")
        return f"found no context {context!r}; kubectl config get-contexts" if is_missing else said
    return f"expected a kubeconfig; {type(error).__name__}: {said}"


def _lacks_credentials(loader: Any) -> bool:  # noqa: ANN401 - untyped client library
    """Tell whether a plugin failed; the library notes that and goes on as nobody."""
    user = loader._user  # noqa: SLF001 - it says so nowhere else
    found = getattr(loader, "token", None) or getattr(loader, "cert_file", None)
    return user is not None and "exec" in user and not found


class _Reread:
    """Load a kubeconfig's credentials again when they are older than a minute.

    Written by: the event loop only. Concurrent requests share one reading, because an exec plugin
    is a process.
    """

    def __init__(
        self, load_and_set: Callable[[Any], Any], clock: Callable[[], float] = monotonic
    ) -> None:
        self._load_and_set = load_and_set
        self._clock = clock
        self._lock = asyncio.Lock()
        self._read_at = clock()

    async def __call__(self, configuration: Any) -> None:  # noqa: ANN401 - see load
        if self._clock() - self._read_at < _REREAD_AFTER_S:
            return
        async with self._lock:
            if self._clock() - self._read_at < _REREAD_AFTER_S:
                return
            self._read_at = self._clock()
            await self._load_and_set(configuration)
