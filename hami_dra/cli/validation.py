"""Ask a real API server what it thinks of converted manifests; nothing is stored there.

Objects are sent as creations in a dry run: the server's schema, its admission and every webhook
that allows dry runs judge them, as they would judge a first `kubectl apply`.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hami_dra.cli.cluster import CLUSTER_ERRORS
from hami_dra.cli.exits import UNREADABLE, fail
from hami_dra.cli.refusal import refused
from hami_dra.cli.report import Entry
from hami_dra.cli.workloads import Thing, things
from hami_dra.kube.errors import ApiError, ConflictError
from hami_dra.kube.served import Discovery, UnknownKindError
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
        server = _Server(session, Discovery(session))
        return [
            refused(where, thing, f"refused by the API server: {why}")
            for where, document in documents
            for thing in things(document)
            if (why := await server.refusal(thing))
        ]


@dataclass(frozen=True, slots=True)
class _Server:
    """An API server, and where each kind is there."""

    session: Session
    discovery: Discovery

    async def refusal(self, thing: Thing) -> str:
        """Return why the server refuses an object; empty if it does not."""
        try:
            namespace = thing.namespace or _DEFAULT_NAMESPACE
            path = await self.discovery.collection(thing.content, namespace)
            await self._create(path, thing.content)
        except (ApiError, UnknownKindError) as error:
            return str(error)
        return ""

    async def _create(self, path: str, body: Json) -> None:
        try:
            await self.session.create(path, body, query=_DRY_RUN)
        except ConflictError:
            # It is there already. What it says is judged under a name that is free.
            metadata = {k: v for k, v in body["metadata"].items() if k != "name"}
            metadata["generateName"] = f"{body['metadata']['name']}-"
            await self.session.create(path, {**body, "metadata": metadata}, query=_DRY_RUN)
