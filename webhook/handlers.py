"""Decide a review: everything that a user can influence first, every effect after."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from hami_dra.kube.templates import Outcome, TemplateConflict, TemplateStore
from hami_dra.migration import (
    Cards,
    Json,
    NamespaceLimits,
    Notice,
    Policy,
    RejectedPod,
    Template,
    migrate,
)
from webhook.quota import Quotas
from webhook.response import CONFLICT, FORBIDDEN, Admitted, Refused, Response
from webhook.review import Request, warnings_of

Tell = Callable[[str, Json, tuple[Notice, ...]], None]
"""Passes on what was noticed of a pod in a namespace; must not wait."""


def mutate(
    request: Request,
    *,
    policy: Policy,
    cards: Cards,
    limits: NamespaceLimits,
    templates: TemplateStore,
    tell: Tell,
    quotas: Quotas,
) -> Response | Awaitable[Response]:
    """Migrate a pod that is being created; anything else passes untouched.

    A dry run writes nothing and gets the same patch (ruling 26). Only a pod whose template is not
    known yet has to wait, and gets its response when that is there.

    Raises:
        ApiError: if a template is needed and the API server refuses it.
        UnreachableError: if a template is needed and the API server does not answer.
    """
    if not request.creates_pod:
        return Admitted()
    try:
        migration = migrate(request.object, policy, cards, limits=limits)
    except RejectedPod as verdict:
        return Refused(str(verdict))
    notices = migration.notices
    if migration.claims:
        if refusal := quotas.refusal(request.namespace, migration.claims):
            return Refused(refusal, FORBIDDEN)
        notices = (*notices, *quotas.notices(request.namespace))
    if request.dry_run:
        return Admitted(migration.patch, warnings_of(notices))

    def admitted(ensured: Mapping[str, Outcome]) -> Response:
        if notices:
            tell(request.namespace, request.object, notices)
        return Admitted(migration.patch, warnings_of(notices), ensured)

    return _with_templates(migration.templates, request.namespace, templates, admitted)


def _with_templates(
    needed: tuple[Template, ...],
    namespace: str,
    templates: TemplateStore,
    admitted: Callable[[Mapping[str, Outcome]], Response],
) -> Response | Awaitable[Response]:
    """Admit a pod as soon as its templates are there, nearly always at once."""
    try:
        if all(templates.holds(namespace, one) for one in needed):
            return admitted({one.name: Outcome.KNOWN for one in needed})
    except TemplateConflict as conflict:
        return Refused(str(conflict), CONFLICT)
    return _later(needed, namespace, templates, admitted)


async def _later(
    needed: tuple[Template, ...],
    namespace: str,
    templates: TemplateStore,
    admitted: Callable[[Mapping[str, Outcome]], Response],
) -> Response:
    try:
        return admitted(await _ensure(needed, namespace, templates))
    except TemplateConflict as conflict:
        return Refused(str(conflict), CONFLICT)


async def _ensure(
    needed: tuple[Template, ...], namespace: str, templates: TemplateStore
) -> dict[str, Outcome]:
    """Have all templates of a pod, the missing ones at once."""
    if len(needed) <= 1:  # nearly always, and without the cost of a task
        return {one.name: await templates.ensure(namespace, one) for one in needed}
    outcomes = await asyncio.gather(*(templates.ensure(namespace, one) for one in needed))
    return dict(zip((one.name for one in needed), outcomes, strict=True))
