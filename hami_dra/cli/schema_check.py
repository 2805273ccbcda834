"""Check converted manifests against Kubernetes' own fields; nothing is asked of any server.

Built-in workloads and templates are checked as a whole, other workloads where their pods are:
what surrounds those is known to their own schemas alone.
"""

from collections.abc import Iterator
from typing import Final

from hami_dra.cli.conversion import Located
from hami_dra.cli.refusal import refused
from hami_dra.cli.report import Entry, Remark
from hami_dra.cli.templates import KIND
from hami_dra.cli.workloads import Thing, dotted, things, workloads
from hami_dra.kube.schema import Problem, model_of, problems, version

_TEMPLATES: Final = "resource.k8s.io"
_POD_TEMPLATE: Final = "V1PodTemplateSpec"


def check(documents: list[Located]) -> list[Entry]:
    """Return what the API has no place for, by object, with every problem of each."""
    return [
        refused(where, thing, f"refused by the schema of Kubernetes {version()}", found)
        for where, document in documents
        for thing in things(document)
        if (found := [_remark(thing, each) for each in _problems(thing)])
    ]


def _remark(thing: Thing, problem: Problem) -> Remark:
    return Remark(problem.text, path=dotted((*thing.steps, *problem.path)))


def _problems(thing: Thing) -> Iterator[Problem]:
    group = _own_group(thing)
    if group is None:
        for workload in workloads(thing):
            yield from problems(workload.pod, _POD_TEMPLATE, workload.steps[len(thing.steps) :])
        return
    written, kind = str(thing.content.get("apiVersion") or ""), str(thing.content["kind"])
    model = model_of(written, kind) if written.rpartition("/")[0] == group else ""
    if model:
        yield from problems(thing.content, model)
    else:
        expected = f"{group}/v1".removeprefix("/")
        yield Problem(("apiVersion",), f"found {written or 'nothing'}, expected {expected}")


def _own_group(thing: Thing) -> str | None:
    """Return the group of a kind that is Kubernetes' own; None for others."""
    if thing.content.get("kind") == KIND:
        return _TEMPLATES
    if thing.kind is not None and thing.kind.pods and thing.kind.is_built_in:
        return thing.kind.group
    return None
