"""What a replica remembers does not grow with the size of what it is sent.

The API server checks an object after the webhooks, so every text in a review may be as long as the
review, and whoever may create pods, or only try to, decides what it says.
"""

import gc
import json
import tracemalloc
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Final

import pytest
from fastapi import FastAPI

from hami_dra.kube.owner_events import OwnerEvents
from hami_dra.kube.session import Session
from hami_dra.kube.templates import MemoryTemplates
from hami_dra.migration import Json, Template
from hami_dra.migration.record import ANNOTATION
from tests.webhook.reviews import post, review_of
from webhook.app import Dependencies, create_app

_REVIEWS: Final = 10
_TEXT: Final = 2**17
_FRAMES: Final = 12


class KnownTemplates(MemoryTemplates):
    """Has every template, and keeps none."""

    def holds(self, _namespace: str, _template: Template) -> bool:
        """Have it."""
        return True


@pytest.fixture
def app() -> FastAPI:
    # Nobody is called: it does not run, so what it has to tell stays.
    events = OwnerEvents(Session(SimpleNamespace()), "webhook-1")
    return create_app(Dependencies(templates=KnownTemplates(), tell=events.tell))


def pod(
    container: str = "main", annotations: Mapping[str, str] | None = None, **metadata: object
) -> Json:
    asked = {"nvidia.com/gpu": "1", "nvidia.com/gpucores": "120"}
    return {
        "metadata": {"name": "p", "annotations": annotations or {}, **metadata},
        "spec": {"containers": [{"name": container, "resources": {"limits": asked}}]},
    }


def owned(key: str, text: str) -> Json:
    owner = {"apiVersion": "v1", "kind": "Job", "name": "j", "uid": text[:9], "controller": True}
    return pod(ownerReferences=[{**owner, key: text}])


def recorded(text: str) -> Json:
    return pod(annotations={ANNOTATION: json.dumps({"fields": {"x": text}})})


def listed(annotation: str, text: str) -> Json:
    return pod(annotations={annotation: f"{text[:9]}{',' * len(text)}"})


def with_mode(text: str) -> Json:
    return pod(annotations={"nvidia.com/vgpu-mode": f"hami-core {text}"})


def marked(text: str) -> Json:
    return pod(annotations={f"hami.io/vgpu-{text}": "x"})


def named(text: str) -> Json:
    return pod(name=text)


LISTS: Final = (
    "nvidia.com/use-gputype",
    "nvidia.com/nouse-gputype",
    "nvidia.com/use-gpuuuid",
    "nvidia.com/nouse-gpuuuid",
    "hami.io/gpu-scheduler-policy",
)
HOSTILE: Final[dict[str, Callable[[str], Json]]] = {
    **{name: partial(listed, name) for name in LISTS},
    **{f"owner {key}": partial(owned, key) for key in ("apiVersion", "kind", "name", "uid")},
    "mode": with_mode,
    "container": pod,
    "record": recorded,
    "name": named,
    "mark": marked,
}


async def send(app: FastAPI, pod: Json) -> None:
    assert (await post(app, review_of(pod))).status_code == 200


@pytest.mark.parametrize("made", HOSTILE.values(), ids=HOSTILE.keys())
async def test_a_long_text_is_forgotten(app: FastAPI, made: Callable[[str], Json]) -> None:
    await send(app, made("x" * _TEXT))  # what it needs once and for all
    tracemalloc.start(_FRAMES)
    try:
        for number in range(_REVIEWS):
            await send(app, made(f"{number:09}{'x' * _TEXT}"))
        gc.collect()
        # Of that size, since threads of other tests may take memory meanwhile.
        traces = [each for each in tracemalloc.take_snapshot().traces if each.size >= _TEXT]
    finally:
        tracemalloc.stop()

    made_at = ["\n".join(each.traceback.format()) for each in traces]
    assert len(traces) <= 1, "\n\n".join(made_at)
