"""Reviews as no API server sends them: real ones, damaged at the level of bytes, JSON and pods."""

import copy
import json
from collections.abc import Callable
from random import Random
from typing import Any, Final

from hypothesis import strategies as st

from hami_dra.migration import Json
from tests.pods import pods
from tests.webhook.reviews import gpu_pod, review_of

# What parsers and the code behind them trip over.
_NASTY: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -1, 2**31, 2**63, 2**200, 1e308, -0.0, "", " ", "0", "-1", "1e999"),
    *("NaN", "9" * 5000, "1Ei", "\x00", "\ud83d\ude00", "\u202e", "a/b~0~1", "..", "{{}}", "'\"`"),
    *("../../x", "nvidia.com/gpu", "x" * 300, [], {}, [None], {"": None}, [[]], {"a": {"b": []}}),
)
_KEYS: Final = (
    *("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"),
    *("nvidia.com/priority", "resources", "limits", "requests", "claims", "containers", "name"),
    *("initContainers", "metadata", "annotations", "labels", "spec", "resourceClaims", "env"),
    *("nvidia.com/use-gputype", "nvidia.com/use-gpuuuid", "nvidia.com/vgpu-mode", "namespace"),
    *("hami-dra.io/migration", "hami.io/webhook", "kubernetes.io/config.mirror", "restartPolicy"),
    *("uid", "dryRun", "operation", "object", "resource", "subResource", "schedulerName", ""),
)

BATCH: Final = 50
"""How many bodies come of one drawn example; drawing is what takes time."""


def real_pods() -> list[Json]:
    """Write pods that people write, with each kind of request."""
    with_init = gpu_pod(gpu="1", gpumem="900")
    with_init["spec"]["initContainers"] = copy.deepcopy(with_init["spec"]["containers"])
    with_init["spec"]["initContainers"][0]["name"] = "init"
    choosing = gpu_pod(gpu="2", gpucores="30")
    choosing["metadata"]["annotations"] = {
        "nvidia.com/use-gputype": "A100,H100",
        "nvidia.com/nouse-gpuuuid": "GPU-a,GPU-b",
    }
    return [
        gpu_pod(gpu="1"),
        gpu_pod(gpu="1", **{"gpumem-percentage": "50"}),
        gpu_pod(gpu="1", gpumem="16Gi"),
        with_init,
        choosing,
    ]


@st.composite
def drawn_bodies(draw: st.DrawFn) -> list[bytes]:
    """Draw a batch of damaged reviews of one pod."""
    pod = draw(st.sampled_from(real_pods()) | pods())
    chance = draw(st.randoms(use_true_random=False))
    review = review_of(pod, dryRun=draw(st.booleans()))
    return [damaged(review, chance) for _ in range(BATCH)]


def damaged(review: Json, chance: Random) -> bytes:
    """Damage a review a few times, as JSON and then perhaps as bytes."""
    harmed = copy.deepcopy(review)
    for _ in range(chance.randrange(4)):
        _damage_json(harmed, chance)
    body = json.dumps(harmed).encode()
    for _ in range(chance.choice((0, 0, 1, 3))):
        body = chance.choice(_BYTE_DAMAGES)(body, chance)
    return body


def _damage_json(root: Json, chance: Random) -> None:
    """Replace, remove, rename or multiply some part of a document."""
    inner: Any = root
    while True:
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        if not keys:
            return
        key = chance.choice(keys)
        below = inner[key]
        if not isinstance(below, dict | list) or not below or chance.random() < 1 / 4:
            chance.choice(_JSON_DAMAGES)(inner, key, chance)
            return
        inner = below


def _replace(inner: Any, key: Any, chance: Random) -> None:  # noqa: ANN401 - any JSON
    inner[key] = copy.deepcopy(chance.choice(_NASTY))


def _remove(inner: Any, key: Any, _chance: Random) -> None:  # noqa: ANN401 - any JSON
    del inner[key]


def _rename(inner: Any, key: Any, chance: Random) -> None:  # noqa: ANN401 - any JSON
    if isinstance(inner, dict):
        inner[chance.choice(_KEYS)] = inner.pop(key)


def _add(inner: Any, key: Any, chance: Random) -> None:  # noqa: ANN401 - any JSON
    if isinstance(inner, dict):
        inner[chance.choice(_KEYS)] = copy.deepcopy(chance.choice(_NASTY))
    else:
        inner.extend(copy.deepcopy(inner[key]) for _ in range(chance.choice((1, 40))))


def _wrap(inner: Any, key: Any, chance: Random) -> None:  # noqa: ANN401 - any JSON
    inner[key] = [inner[key]] if chance.random() < 1 / 2 else {chance.choice(_KEYS): inner[key]}


_JSON_DAMAGES: Final[tuple[Callable[[Any, Any, Random], None], ...]] = (
    *(_replace, _replace, _remove, _rename, _add, _wrap),
)


def _flip(body: bytes, chance: Random) -> bytes:
    place = chance.randrange(len(body) + 1)
    return body[:place] + bytes([chance.randrange(256)]) + body[place + 1 :]


def _cut(body: bytes, chance: Random) -> bytes:
    return body[: chance.randrange(len(body) + 1)]


def _leave_out(body: bytes, chance: Random) -> bytes:
    place = chance.randrange(len(body) + 1)
    return body[:place] + body[place + chance.randrange(1, 40) :]


def _repeat(body: bytes, chance: Random) -> bytes:
    place = chance.randrange(len(body) + 1)
    return body[:place] + body[place : place + 40] * chance.randrange(2, 50) + body[place:]


def _insert(body: bytes, chance: Random) -> bytes:
    place = chance.randrange(len(body) + 1)
    junk = chance.choice((b"\x00", b"\xff", b"[" * 3000, b'{"a":' * 3000, b"\\ud800", b"1e9999"))
    return body[:place] + junk + body[place:]


_BYTE_DAMAGES: Final[tuple[Callable[[bytes, Random], bytes], ...]] = (
    *(_flip, _flip, _cut, _leave_out, _repeat, _insert),
)
