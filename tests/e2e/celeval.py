"""Kubernetes' own CEL evaluator for device selectors, by way of tests/cluster/celeval."""

import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

from hami_dra.lab import build, modules
from hami_dra.migration import Json


@dataclass(frozen=True, slots=True)
class Question:
    """Whether all selectors of a request accept a device.

    Attributes:
        driver: the device's driver.
        device: as in a ResourceSlice.
        selectors: CEL expressions.
    """

    driver: str
    device: Json
    selectors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API server and the scheduler would say.

    Attributes:
        matches: whether every selector accepts the device.
        refused: why the API server would not store a selector: errors, length, cost.
        failed: why the scheduler would give up on the pod; empty when it would not.
        cost: the worst case of each selector.
    """

    matches: bool
    refused: list[str]
    failed: str
    cost: list[int]


def ask(questions: Iterable[Question], version: str | None) -> list[Answer]:
    """Put questions to the evaluator of a version of Kubernetes, built now unless it was before."""
    program = build.binary(version or modules.DEFAULT)
    lines = [
        json.dumps({"driver": q.driver, "device": q.device, "selectors": q.selectors})
        for q in questions
    ]
    done = subprocess.run(
        [program, "celeval"],
        input="\n".join(lines),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [Answer(**json.loads(line)) for line in done.stdout.splitlines()]
