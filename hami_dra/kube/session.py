"""Speak to one API server: dicts in, dicts out.

The official client is transport only (ruling 36): it finds the server, keeps the credentials fresh
and pools connections. Its models drop or refuse fields that they do not know, so none is used here.
"""

import json
import os
import random
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlencode

import aiohttp

from hami_dra.kube.errors import ApiError, ConfigurationError, UnreachableError
from hami_dra.migration.json import Json

MERGE_PATCH: Final = "application/merge-patch+json"
"""Content type of a patch that is a partial object."""

JSON_PATCH: Final = "application/json-patch+json"
"""Content type of a patch that is a list of operations."""

JSON: Final = "application/json"
"""Content type of an object."""

APPLY_PATCH: Final = "application/apply-patch+yaml"
"""Content type of a patch that says all its author wants of an object; JSON is YAML."""

Query = Mapping[str, str]

_CALL = aiohttp.ClientTimeout(total=30, sock_connect=10)
_WATCH_S: Final = 300
# The server sends a bookmark about once a minute: a stream silent for longer is a dead connection.
_WATCH = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=150)
_USER_AGENT: Final = "hami-dra"
_LAST_GOOD: Final = 299


class Session:
    """A pool of connections to one API server, authenticated.

    No throttling: flow control is the server's (API priority and fairness), and the stock client's
    limits are the first thing that chokes (ruling 32).

    Args:
        client: the official client, or what does the same for a pod (`hami_dra.kube.incluster`).
        credential_errors: what renewing credentials raises.
    """

    def __init__(
        self,
        client: Any,  # noqa: ANN401 - untyped client library
        *,
        credential_errors: tuple[type[Exception], ...] = (),
    ) -> None:
        self._client = client
        self._credential_errors: tuple[type[Exception], ...] = (*credential_errors, OSError)
        self._client.user_agent = _USER_AGENT

    @classmethod
    async def connect(cls, kubeconfig: Path | None = None, context: str | None = None) -> Self:
        """Find the cluster; sends nothing yet, so it works while the server is away.

        Args:
            kubeconfig: a file to use instead of searching.
            context: a context of that file instead of its current one.

        Raises:
            ConfigurationError: if no cluster is described anywhere, with what was tried.
        """
        # Large imports, which an agent that has its pod's account does without.
        from kubernetes.aio.config import ConfigException  # noqa: PLC0415

        from hami_dra.kube.credentials import load, locate  # noqa: PLC0415
        from hami_dra.kube.official import Client  # noqa: PLC0415

        source = locate(kubeconfig, context, environ=os.environ, home=Path.home())
        configuration = await load(source, context)
        try:
            client = Client(configuration)
        except (OSError, ValueError) as error:  # of certificates and keys
            raise ConfigurationError(f"could not use {source}: {error}") from error
        return cls(client, credential_errors=(ConfigException,))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        await self._client.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Json | list[Json] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Json:
        """Call the API server and return its answer.

        Args:
            method: of HTTP.
            path: of the object or collection.
            query: parameters.
            body: what is sent.
            content_type: of what is sent.
            accept: what may come back, such as metadata alone; always some form of JSON.

        Raises:
            ApiError: if it refuses; NotFoundError, ConflictError and GoneError are told apart.
            UnreachableError: if it does not answer.
        """
        try:
            async with await self._send(
                method,
                path,
                query=query,
                body=body,
                content_type=content_type,
                accept=accept,
                timeout=_CALL,
            ) as answer:
                return _decode(await answer.read(), method, path)
        except (aiohttp.ClientError, OSError) as error:
            raise UnreachableError(f"{method} {path}: {_words(error)}") from error

    async def get(self, path: str, *, query: Query | None = None) -> Json:
        """Read an object or a list."""
        return await self.request("GET", path, query=query)

    async def create(self, path: str, body: Json, *, query: Query | None = None) -> Json:
        """Create an object in a collection and return it as stored."""
        return await self.request("POST", path, query=query, body=body)

    async def replace(self, path: str, body: Json, *, query: Query | None = None) -> Json:
        """Replace an object and return it as stored."""
        return await self.request("PUT", path, query=query, body=body)

    async def patch(
        self,
        path: str,
        body: Json | list[Json],
        *,
        query: Query | None = None,
        content_type: str = MERGE_PATCH,
    ) -> Json:
        """Change an object and return it as stored."""
        return await self.request("PATCH", path, query=query, body=body, content_type=content_type)

    async def apply(self, path: str, body: Json, *, manager: str, force: bool = False) -> Json:
        """Create an object or change it to what its author wants, and return it as stored.

        Args:
            path: of the object itself.
            body: the fields that the author has an opinion on; those left out that were said
                before go, others are not touched.
            manager: the author, who owns these fields from now on.
            force: take fields that others own; otherwise that is a ConflictError naming them.
        """
        query = {"fieldManager": manager, "force": str(force).lower()}
        return await self.patch(path, body, query=query, content_type=APPLY_PATCH)

    async def delete(self, path: str, *, options: Json | None = None) -> Json:
        """Delete an object; `options` is a DeleteOptions, such as one with preconditions."""
        return await self.request("DELETE", path, body=options)

    async def version(self) -> tuple[int, int]:
        """Return the server's version as numbers that compare, such as (1, 37)."""
        found = await self.get("/version")
        try:
            # Some distributions report the minor version as "37+".
            return int(found["major"]), int(found["minor"].rstrip("+"))
        except (KeyError, ValueError, AttributeError) as error:
            raise UnreachableError(f"/version: found {found!r:.200}, not a version") from error

    async def watch(
        self, path: str, *, resource_version: str, query: Query | None = None
    ) -> AsyncGenerator[Json, None]:
        """Yield the events of a collection, bookmarks included, until the server ends the stream.

        Close the iterator (`contextlib.aclosing`) to give its connection back.

        Raises:
            ApiError: if the server refuses or sends an ERROR event; GoneError means list again.
            UnreachableError: if the stream breaks.
        """
        parameters = {
            **(query or {}),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            # Spread, so that replicas started together do not reconnect together for ever.
            "timeoutSeconds": str(random.randint(_WATCH_S, 2 * _WATCH_S)),  # noqa: S311 - no secret
        }
        try:
            async with await self._send("GET", path, query=parameters, timeout=_WATCH) as answer:
                async for line in _lines(answer):
                    yield _event(line, path)
        except (aiohttp.ClientError, OSError) as error:
            raise UnreachableError(f"watch {path}: {_words(error)}") from error

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Query | None,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own, split by phase
        body: Json | list[Json] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> aiohttp.ClientResponse:
        """Send a request with fresh credentials; return the open answer if it is a good one."""
        headers = {"Accept": accept, "Content-Type": content_type}
        await self._authorize(headers, method, path)
        url = f"{self._client.configuration.host}{path}" + (f"?{urlencode(query)}" if query else "")
        sent = await self._client.rest_client.request(
            method, url, headers=headers, body=body, _request_timeout=timeout
        )
        answer: aiohttp.ClientResponse = sent.response
        if answer.status > _LAST_GOOD:
            async with answer:
                text = await answer.read()
            raise ApiError.from_answer(answer.status, answer.reason or "", text)
        return answer

    async def _authorize(self, headers: dict[str, str], method: str, path: str) -> None:
        """Add credentials through the hooks that the generated API uses, which renew them."""
        headers.update(self._client.default_headers)
        try:
            await self._client.update_params_for_auth(
                headers, [], ["BearerToken"], path, method, None
            )
        except self._credential_errors as error:
            raise UnreachableError(f"could not renew the credentials: {error}") from error


def _words(error: Exception) -> str:
    """Say why there is no answer; the library's errors show its objects, or nothing at all."""
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, ssl.SSLError):
        cause = error.os_error
        said = cause.strerror or str(cause)
        if isinstance(cause, ConnectionError) and cause.errno:
            # The loop's own sentence names the address once more, and not what happened.
            said = os.strerror(cause.errno)
        return f"{error.host}:{error.port}: {said}"
    if isinstance(error, TimeoutError):
        return str(error) or "no answer in time"
    return str(error) or type(error).__name__


async def _lines(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Split a stream into lines of any length; aiohttp's own reader gives up on long ones."""
    held: list[bytes] = []
    async for chunk in answer.content.iter_any():
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            yield b"".join([*held, line])
            held.clear()
        held.append(rest)
    if any(held):
        raise UnreachableError("the stream ended inside an event")


def _event(line: bytes, path: str) -> Json:
    event = _decode(line, "watch", path)
    if event.get("type") == "ERROR":
        raise ApiError.from_status(event.get("object") or {})
    return event


def _decode(text: bytes, verb: str, path: str) -> Json:
    """Read a JSON object that the API server sent."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UnreachableError(f"{verb} {path}: the answer is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise UnreachableError(
            f"{verb} {path}: the answer is {type(found).__name__}, not an object"
        )
    return found
