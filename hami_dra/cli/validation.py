"""Ask a real API server what it thinks of converted manifests; nothing is stored there.

Objects are sent as creations in a dry run: the server's schema, its admission and every webhook
that allows dry runs judge them, as they would judge a first `kubectl apply`.
"""

import asyncio
from pathlib import Path
from typing import Final

from hami_dra.cli.cluster import CLUSTER_ERRORS
from hami_dra.cli.exits import UNREADABLE, fail
from hami_dra.cli.refusal import refused
from hami_dra.cli.report import Entry
from hami_dra.cli.workloads import Thing, things
from hami_dra.kube.errors import ApiError, ConflictError
from hami_dra.kube.session import Session
from hami_dra.migration import Json

_DRY_RUN: Final = {"dryRun": "All", "fieldValidation": "Strict"}
_DEFAULT_NAMESPACE: Final = "default"


def validate(
    documents: list[tuple[str, Json]], context: str | None, kubeconfig: Path | None
) -> list[Entry]:
    """Return what the server refuses, by object; end the command if the server is not there.

    Args:
        documents: where each stood, as `file:line`, and its content.
        context: of the kubeconfig; None for its current one.
        kubeconfig: the file; None for the usual places.
    """
    try:
        return asyncio.run(_validate(documents, context, kubeconfig))
    except CLUSTER_ERRORS as error:
        fail(f"cluster: {error}", code=UNREADABLE)


async def _validate(
    documents: list[tuple[str, Json]], context: str | None, kubeconfig: Path | None
) -> list[Entry]:
    async with await Session.connect(kubeconfig, context) as session:
        server = _Server(session)
        return [
            refused(where, thing, f"refused by the API server: {why}")
            for where, document in documents
            for thing in things(document)
            if (why := await server.refusal(thing))
        ]


class _Server:
    """An API server, and which resource each kind is there."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._found: dict[str, list[Json]] = {}

    async def refusal(self, thing: Thing) -> str:
        """Return why the server refuses an object; empty if it does not."""
        try:
            path = await self._path(thing)
            if path is None:
                return f"it has no kind {thing.content.get('kind')} in {_version(thing)}"
            await self._create(path, thing.content)
        except ApiError as error:
            return str(error)
        return ""

    async def _create(self, path: str, body: Json) -> None:
        try:
            await self._session.create(path, body, query=_DRY_RUN)
        except ConflictError:
            # It is there already. What it says is judged under a name that is free.
            metadata = {k: v for k, v in body["metadata"].items() if k != "name"}
            metadata["generateName"] = f"{body['metadata']['name']}-"
            await self._session.create(path, {**body, "metadata": metadata}, query=_DRY_RUN)

    async def _path(self, thing: Thing) -> str | None:
        """Return the collection that an object belongs to."""
        base = f"/apis/{_version(thing)}" if "/" in _version(thing) else f"/api/{_version(thing)}"
        if base not in self._found:
            self._found[base] = (await self._session.get(base)).get("resources") or []
        for resource in self._found[base]:
            if resource["kind"] == thing.content.get("kind") and "/" not in resource["name"]:
                within = f"/namespaces/{thing.namespace or _DEFAULT_NAMESPACE}"
                return f"{base}{within if resource['namespaced'] else ''}/{resource['name']}"
        return None


def _version(thing: Thing) -> str:
    return str(thing.content.get("apiVersion", ""))
