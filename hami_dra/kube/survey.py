"""Look for the templates of ours and for what refers to them; nothing is written.

The search reads page by page and ends as soon as every template is known to be in use.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from hami_dra.kube.pages import pages
from hami_dra.kube.session import Session
from hami_dra.kube.unused import (
    CLAIMS,
    WORKLOADS,
    Judgement,
    Rule,
    Source,
    foreign,
    judge,
    named_by,
    tied_to,
)
from hami_dra.migration.claim import MANAGED_BY
from hami_dra.migration.json import Json

ROOT: Final = "/apis/resource.k8s.io/v1"
RESOURCE: Final = "resourceclaimtemplates"


@dataclass(frozen=True, slots=True)
class Judged:
    """A template and what becomes of it.

    Attributes:
        template: its metadata.
        judgement: what was decided.
    """

    template: Json
    judgement: Judgement

    @property
    def namespace(self) -> str:
        """Where it is."""
        return str(self.template["metadata"]["namespace"])

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.template["metadata"]["name"])


def collection(namespace: str = "") -> str:
    """Return the path of a namespace's templates, of all templates without one."""
    return f"{ROOT}/namespaces/{namespace}/{RESOURCE}" if namespace else f"{ROOT}/{RESOURCE}"


async def labelled(session: Session, namespace: str = "") -> dict[str, list[Json]]:
    """Read the metadata of all templates with our label, by namespace."""
    selector = ",".join(f"{name}={value}" for name, value in MANAGED_BY.items())
    query = {"labelSelector": selector}
    found: dict[str, list[Json]] = {}
    listing = pages(session, collection(namespace), query=query, metadata_only=True)
    async with aclosing(listing):
        async for items in listing:
            for item in items:
                found.setdefault(item["metadata"]["namespace"], []).append(item)
    return found


async def judge_all(
    session: Session, namespace: str, templates: Iterable[Json], rule: Rule
) -> list[Judged]:
    """Decide about templates of one namespace; only those of ours cost a search.

    Raises:
        ApiError: if the API server refuses a read: what cannot be seen may be a user.
        UnreachableError: if it does not answer.
    """
    found = list(templates)
    ours = {each["metadata"]["name"] for each in found if not foreign(each)}
    users = await users_of(session, namespace, ours)
    return [Judged(each, judge(each, users.get(each["metadata"]["name"]), rule)) for each in found]


async def users_of(session: Session, namespace: str, names: Collection[str]) -> dict[str, str]:
    """Find for each template one object that refers to it, such as `Pod/trainer`.

    Raises:
        ApiError: if the API server refuses a read.
        UnreachableError: if it does not answer.
    """
    users: dict[str, str] = {}
    for source in (*WORKLOADS, CLAIMS):
        if len(users) == len(names):
            break
        listing = pages(session, source.path(namespace), metadata_only=source is CLAIMS)
        async with aclosing(listing):
            async for items in listing:
                _take_in(users, items, source, names)
                if len(users) == len(names):
                    break
    return users


def _take_in(
    users: dict[str, str], items: Iterable[Json], source: Source, names: Collection[str]
) -> None:
    for item in items:
        for name in _names(item, source):
            if name in names:
                users.setdefault(name, f"{source.kind}/{item['metadata']['name']}")


def _names(item: Json, source: Source) -> Iterator[str]:
    return tied_to(item) if source is CLAIMS else named_by(item, source)
