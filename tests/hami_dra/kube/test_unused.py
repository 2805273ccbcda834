"""Templates go when nothing refers to them for long enough, and only those that we made."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_dra.cli.kinds import KINDS
from hami_dra.kube.unused import (
    DEFAULT_TTL,
    UNUSED_SINCE,
    WORKLOADS,
    Action,
    Rule,
    Source,
    foreign,
    judge,
    mark,
    named_by,
    recorded,
    restored,
    spell,
    tied_to,
)
from hami_dra.migration import Json

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
TTL = timedelta(days=7)


def template(*, marked: str | None = None, **metadata: object) -> Json:
    """Write a template as the webhook makes it, with more or other metadata."""
    annotations = {} if marked is None else {UNUSED_SINCE: marked}
    return {
        "metadata": {
            "name": "hami-1x8192mi-0c-0123456789",
            "namespace": "team",
            "uid": "u",
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app.kubernetes.io/managed-by": "hami-dra"},
            "annotations": annotations,
            "managedFields": [{"manager": "hami-dra"}],
            **metadata,
        },
        "spec": {"spec": {}},
    }


SOMEBODY_ELSES = {
    "without our label": (template(labels={}), "does not carry our label"),
    "applied by kubectl": (
        template(annotations={"kubectl.kubernetes.io/last-applied-configuration": "{}"}),
        "applied it with kubectl",
    ),
    "owned": (template(ownerReferences=[{"kind": "Job", "name": "j"}]), "Job/j owns it"),
    "protected": (template(finalizers=["a/b"]), "finalizer a/b"),
    "going": (template(deletionTimestamp="2026-11-30T00:00:00Z"), "being deleted"),
    "written by GitOps": (
        template(managedFields=[{"manager": "hami-dra"}, {"manager": "argocd-controller"}]),
        "argocd-controller wrote it",
    ),
    "written by nobody": (template(managedFields=[]), "nothing tells who wrote it"),
    "without a name": (template(managedFields=[{}]), "somebody without a name"),
}


@pytest.mark.parametrize("case", SOMEBODY_ELSES)
def test_what_somebody_else_has_a_hand_in_is_left_alone(case: str) -> None:
    item, reason = SOMEBODY_ELSES[case]

    judgement = judge(item, None, Rule(NOW, timedelta()))

    assert judgement.action is Action.KEEP
    assert reason in judgement.reason


def test_what_is_unused_is_marked_first_and_goes_later() -> None:
    seen = judge(template(), None, Rule(NOW))
    early = judge(template(marked="2026-11-23T12:00:01Z"), None, Rule(NOW))
    late = judge(template(marked="2026-11-23T12:00:00Z"), None, Rule(NOW))

    assert (seen.action, seen.since) == (Action.MARK, NOW)
    assert (early.action, early.reason) == (Action.KEEP, "unused for less than 7 days")
    assert (late.action, late.reason) == (Action.SWEEP, "unused for 7 days")


def test_what_is_used_again_loses_its_mark() -> None:
    assert judge(template(), "Pod/p", Rule(NOW)).action is Action.KEEP
    assert judge(template(marked="2020-01-01T00:00:00Z"), "Pod/p", Rule(NOW)).action is (
        Action.UNMARK
    )


@pytest.mark.parametrize("written", ["", "soon", "2026-11-30", "2026-12-01T00:00:00Z"])
def test_a_mark_that_says_nothing_is_made_anew(written: str) -> None:
    """Anybody can write an annotation; a wrong one delays a sweep and hastens none."""
    assert judge(template(marked=written), None, Rule(NOW)).action is Action.MARK


def test_the_creation_counts_only_where_a_person_asks_for_it() -> None:
    asked = judge(template(), None, Rule(NOW, TTL, creation_counts=True))
    young = template(creationTimestamp="2026-11-30T00:00:00Z")

    assert asked.action is Action.SWEEP
    assert judge(young, None, Rule(NOW, TTL, creation_counts=True)).action is Action.KEEP
    assert judge(template(), None, Rule(NOW, TTL)).action is Action.MARK


def test_a_mark_is_bound_to_what_was_judged() -> None:
    patch = mark(template(), NOW)

    assert patch["metadata"]["resourceVersion"] == "1"
    assert recorded({"metadata": patch["metadata"]}, NOW) == NOW
    assert mark(template(), None)["metadata"]["annotations"] == {UNUSED_SINCE: None}


def test_what_is_put_back_is_the_same_template_without_a_mark() -> None:
    back = restored(template(marked="2026-01-01T00:00:00Z"))

    assert back["spec"] == template()["spec"]
    assert back["metadata"] == {
        key: template()["metadata"][key] for key in ("name", "namespace", "labels")
    }


def test_the_kinds_are_kubernetes_own_that_the_command_line_converts() -> None:
    own = {kind.kind: kind for kind in KINDS if kind.paths and kind.group in {"", "apps", "batch"}}

    assert {source.kind: (source.pod,) for source in WORKLOADS} == {
        name: kind.paths for name, kind in own.items()
    }


def workload(source: Source, spec: Json) -> Json:
    inside: Json = {"spec": spec}
    for step in reversed(source.pod):
        inside = {step: inside}
    return {"metadata": {"name": "w"}, **inside}


@pytest.mark.parametrize("source", WORKLOADS, ids=lambda source: source.kind)
def test_a_reference_is_found_in_every_kind(source: Source) -> None:
    entries = [{"name": "a", "resourceClaimTemplateName": "t"}, {"name": "b"}]

    assert list(named_by(workload(source, {"resourceClaims": entries}), source)) == ["t"]
    assert list(named_by(workload(source, {}), source)) == []
    assert list(named_by({"metadata": {"name": "w"}}, source)) == []


def test_a_claim_may_be_tied_to_a_template() -> None:
    owners = [{"kind": "Pod", "name": "p"}, {"kind": "ResourceClaimTemplate", "name": "t"}]
    claim = {"metadata": {"ownerReferences": owners, "annotations": {"from": "u"}}}

    assert list(tied_to(claim)) == ["t", "u"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 seconds"), (1, "1 second"), (120, "2 minutes"), (3600, "1 hour"), (691200, "8 days")],
)
def test_a_span_is_spelled_in_its_largest_unit(seconds: int, words: str) -> None:
    assert spell(timedelta(seconds=seconds)) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(36 * 3600, "36 hours"), (90, "90 seconds"), (7 * 86_400, "7 days"), (3600, "1 hour")],
)
def test_a_limit_is_spelled_in_the_largest_unit_that_says_all(seconds: int, words: str) -> None:
    assert spell(timedelta(seconds=seconds), whole=True) == words


def passes(uses: list[bool], gaps: list[int]) -> Iterator[tuple[datetime, bool]]:
    """Yield the moment of each pass, and whether the template is in use then."""
    now = NOW
    for used, gap in zip(uses, gaps, strict=False):
        now += timedelta(minutes=gap)
        yield now, used


@given(
    st.lists(st.booleans(), max_size=60),
    st.lists(st.integers(1, 5000), min_size=60, max_size=60),
)
def test_a_template_goes_once_it_was_unused_for_its_time_and_never_before(
    uses: list[bool], gaps: list[int]
) -> None:
    """Whatever passes see, in whatever order: the record lives on the object alone."""
    item = template()
    unused_since: datetime | None = None
    for now, used in passes(uses, gaps):
        unused_since = None if used else unused_since or now
        judgement = judge(item, "Pod/p" if used else None, Rule(now))
        if judgement.action is Action.SWEEP:
            assert unused_since is not None
            assert now - unused_since >= DEFAULT_TTL
            return
        assert unused_since is None or now - unused_since < DEFAULT_TTL
        if judgement.action in (Action.MARK, Action.UNMARK):
            patch = mark(item, judgement.since if judgement.action is Action.MARK else None)
            written = {k: v for k, v in patch["metadata"]["annotations"].items() if v is not None}
            item = template(annotations=written)


metadata = st.fixed_dictionaries(
    {},
    optional={
        "labels": st.sampled_from([{}, None, {"app.kubernetes.io/managed-by": "Helm"}]),
        "annotations": st.dictionaries(st.sampled_from([UNUSED_SINCE, "x"]), st.text(max_size=22)),
        "ownerReferences": st.just([{"kind": "Pod", "name": "p"}]),
        "finalizers": st.just(["f"]),
        "managedFields": st.lists(
            st.fixed_dictionaries({"manager": st.sampled_from(["hami-dra", "helm"])}), max_size=2
        ),
    },
)


rules = st.builds(Rule, st.just(NOW), st.timedeltas(timedelta()), st.booleans())


@given(metadata, st.sampled_from([None, "Pod/p"]), rules)
def test_nothing_of_somebody_elses_and_nothing_in_use_ever_goes(
    drawn: Json, user: str | None, rule: Rule
) -> None:
    item = template(**drawn)

    judgement = judge(item, user, rule)

    if foreign(item):
        assert judgement.action is Action.KEEP
    elif user:
        assert judgement.action in (Action.KEEP, Action.UNMARK)
    else:
        assert judgement.action is not Action.UNMARK
