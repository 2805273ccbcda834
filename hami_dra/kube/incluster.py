"""The API server as a pod sees it, without the official client's 20 MB and second of imports.

An agent runs on every node and must be back within seconds, and a pod's service account needs
nothing of that client but its shape: an address, an authority, and a token that changes.
"""

import json
import os
import ssl
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any, Final

import aiohttp

from hami_dra.kube.connections import Pool
from hami_dra.kube.errors import ConfigurationError
from hami_dra.kube.session import Session
from hami_dra.migration.json import Json

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet puts a pod's token and the API server's authority."""

_REREAD_AFTER_S: Final = 60.0  # what the official client uses
_POOL_SIZE: Final = 64


def has_account(environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether this is a pod with a service account, and nothing else was named."""
    return bool(environ.get("KUBERNETES_SERVICE_HOST")) and not environ.get("KUBECONFIG")


async def find(kubeconfig: Path | None, context: str | None, account: Path = ACCOUNT) -> Session:
    """Return a session of the cluster that is named, or in a pod of the pod's own.

    Raises:
        ConfigurationError: if no cluster is described anywhere, with what was tried.
    """
    if kubeconfig is None and context is None and has_account():
        return await connect(account=account)
    return await Session.connect(kubeconfig, context)


async def connect(environ: Mapping[str, str] = os.environ, account: Path = ACCOUNT) -> Session:
    """Return a session of the pod's service account; sends nothing yet.

    Raises:
        ConfigurationError: if the pod has no token or no authority.
    """
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    address = f"[{host}]" if ":" in host else host
    try:
        authority = Authority(account / "ca.crt")
        token = ServiceAccountToken(account / "token")
        token.current()
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"found no service account in {account} ({error}): set automountServiceAccountToken in"
            " the pod, or give --kubeconfig"
        ) from error
    return Session(PodClient(f"https://{address}:{port}", token, authority))


class Authority:
    """Whom a pod trusts to be the API server; the kubelet writes a new authority into the file.

    Args:
        path: the file.

    Raises:
        OSError: if there is none, or it is no certificate.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = path.read_text()
        self._read_at = monotonic()
        self.context = ssl.create_default_context(cadata=self._text)

    def refresh(self) -> None:
        """Trust what the file names now too; it is read again once a minute."""
        if monotonic() - self._read_at <= _REREAD_AFTER_S:
            return
        self._read_at = monotonic()
        # Whom we trust already may still be right when the file cannot be read.
        with suppress(OSError, ValueError):
            text = self._path.read_text()
            if text != self._text:
                self.context.load_verify_locations(cadata=text)
                self._text = text


class ServiceAccountToken:
    """A token that the kubelet renews in its file.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = ""
        self._read_at = float("-inf")

    def current(self) -> str:
        """Return the token, read again once a minute.

        Raises:
            OSError: if there is none.
        """
        if monotonic() - self._read_at > _REREAD_AFTER_S:
            self._text = self._path.read_text().strip()
            self._read_at = monotonic()
        return self._text


class PodClient:
    """The part of the official client's shape that `Session` uses.

    Args:
        host: the API server's URL.
        token: who we are.
        authority: whom we trust; None for plain HTTP.
    """

    def __init__(self, host: str, token: ServiceAccountToken, authority: Authority | None) -> None:
        self.configuration = SimpleNamespace(host=host)
        self.default_headers: dict[str, str] = {}
        self.user_agent = ""
        self.rest_client = self
        self._token = token
        self._authority = authority
        connector = Pool(limit=_POOL_SIZE, ssl=authority.context if authority else True)
        # The API server sets no cookies, and looking for them costs a tenth of a call.
        jar = aiohttp.DummyCookieJar()
        self._session = aiohttp.ClientSession(connector=connector, cookie_jar=jar)

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: Json | list[Json] | None,
        _request_timeout: aiohttp.ClientTimeout,
    ) -> Any:  # noqa: ANN401 - the official client's shape
        """Send a request and return the open answer."""
        answer = await self._session.request(
            method,
            url,
            headers={**headers, "User-Agent": self.user_agent},
            data=None if body is None else json.dumps(body).encode(),
            timeout=_request_timeout,
        )
        return SimpleNamespace(response=answer)

    async def update_params_for_auth(self, headers: dict[str, str], *_: object) -> None:
        """Add the token.

        Raises:
            OSError: if it cannot be read.
        """
        if self._authority:
            self._authority.refresh()
        headers["Authorization"] = f"Bearer {self._token.current()}"

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()
