"""How long a migration takes, beside building its patch with a general diff: `make bench`.

Ratios within one run are what counts; absolute figures depend on the machine.
"""

import json
import resource
from collections.abc import Callable
from typing import Any, Protocol

import jsonpatch
import pytest

from hami_dra.migration import Cards, Json, Policy, migrate
from hami_dra.migration.pod import NO_LIMITS, migrate_part

POLICY = Policy(kubernetes="1.37")
CARDS = Cards(frozenset({81920}))
CALLS = 1_000_000
KIBIBYTES = 1024


class Benchmark(Protocol):
    """What pytest-benchmark hands to a test."""

    extra_info: dict[str, Any]

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401
        """Call a function many times and return what it returned."""


def container(name: str, variables: int) -> Json:
    amounts = {
        "cpu": "1",
        "memory": "4Gi",
        "nvidia.com/gpu": "1",
        "nvidia.com/gpumem": "8k",
        "nvidia.com/gpucores": "30",
    }
    return {
        "name": name,
        "image": "registry.example/inference:1.0",
        "env": [{"name": f"VARIABLE_{n}", "value": "value" * 4} for n in range(variables)],
        "resources": {"limits": dict(amounts), "requests": dict(amounts)},
        "volumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080}},
    }


def pod(containers: int, variables: int) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "inference-5db6446797-",
            "labels": {"app": "inference", "pod-template-hash": "5db6446797"},
            "annotations": {"nvidia.com/use-gputype": "A100,H100", "checksum/config": "0" * 64},
            "managedFields": [{"fieldsV1": {f"f:field-{n}": {} for n in range(30)}}],
        },
        "spec": {
            "containers": [container(f"c{n}", variables) for n in range(containers)],
            "schedulerName": "default-scheduler",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
            "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
        },
    }


PODS = {"4 KB": pod(1, 40), "25 KB": pod(6, 60)}


@pytest.mark.parametrize("size", PODS)
def bench_next_of_its_kind(benchmark: Benchmark, size: str) -> None:
    """A pod like another one before, as all but the first of a workload are."""
    benchmark.extra_info["bytes"] = len(json.dumps(PODS[size]))
    result = benchmark(migrate, PODS[size], POLICY, CARDS)
    assert result.patch


@pytest.mark.parametrize("size", PODS)
def bench_first_of_its_kind(benchmark: Benchmark, size: str) -> None:
    """Nothing is remembered: what the first pod of a workload costs."""
    result = benchmark(migrate_part, PODS[size], POLICY, CARDS, NO_LIMITS)
    assert result.patch


@pytest.mark.parametrize("size", PODS)
def bench_general_diff(benchmark: Benchmark, size: str) -> None:
    before = PODS[size]
    after = jsonpatch.apply_patch(before, migrate(before, POLICY, CARDS).patch)
    assert benchmark(jsonpatch.make_patch, before, after).patch


def bench_memory() -> None:
    """Migrate a million pods of a thousand shapes; what is remembered is bounded."""
    kinds = [pod(1, 4) for _ in range(1000)]
    for number, kind in enumerate(kinds):
        kind["spec"]["containers"][0]["resources"] = {
            "limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(1000 + number)}
        }
    for kind in kinds * 20:
        migrate(kind, POLICY, CARDS)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(CALLS // len(kinds)):
        for kind in kinds:
            migrate(kind, POLICY, CARDS)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"\n{CALLS} migrations: {before // KIBIBYTES} MiB before, {after // KIBIBYTES} MiB after")
    assert after - before < 8 * KIBIBYTES
