"""Pods in every layout: converted as the webhook patches them, and back to what they were."""

from typing import Any

import jsonpatch
from hypothesis import given, settings
from hypothesis import strategies as st

from hami_dra.cli.conversion import Converter
from hami_dra.cli.documents import split
from hami_dra.cli.reversion import Reverter
from hami_dra.migration import Cards, Json, Policy, migrate
from hami_dra.yaml_edit.same import same
from tests.hami_dra.yaml_edit.layouts import Writer, values

POLICY = Policy(kubernetes="1.37")
AMOUNTS = st.fixed_dictionaries(
    {"nvidia.com/gpu": st.integers(0, 2)},
    optional={
        "cpu": st.sampled_from((1, "500m")),
        "nvidia.com/gpumem": st.sampled_from((1000, "8k", "4000")),
        "nvidia.com/gpucores": st.integers(0, 100),
        "nvidia.com/priority": st.integers(0, 1),
        "memory": st.just("1Gi"),
    },
)


@st.composite
def pods(draw: Any) -> tuple[str, Json]:  # noqa: ANN401 - hypothesis leaves it untyped
    """Draw a pod, and a text that says it."""
    extras = st.dictionaries(st.sampled_from(("command", "image", "other")), values(3), max_size=1)
    containers = [
        {"name": name, "resources": {"limits": draw(AMOUNTS)}, **draw(extras)}
        for name in draw(st.sampled_from((("a",), ("a", "b"))))
    ]
    metadata = {"name": "p", **draw(st.sampled_from(({}, {"annotations": {"x": "y"}})))}
    pod = {"kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}
    keys = draw(st.permutations(sorted(pod)))
    pod = {key: pod[key] for key in keys}
    lines = Writer(draw).block(pod, 0, ())
    return draw(st.sampled_from(("\n", "\r\n"))).join([*lines, ""]), pod


@settings(max_examples=40)
@given(pods())
def test_a_pod_in_any_layout_becomes_what_the_webhook_makes_of_it(drawn: tuple[str, Json]) -> None:
    text, pod = drawn
    expected = jsonpatch.apply_patch(pod, migrate(pod, POLICY, Cards()).patch)

    converted = Converter(POLICY, Cards()).convert("x", text.encode())

    assert [entry.reason for entry in converted.entries if entry.reason] == []
    made = converted.text or text
    *_, last = [document.parsed().value for document in split("x", made)]
    assert same(last, expected)
    assert Converter(POLICY, Cards()).convert("x", made.encode()).text is None
    reverter = Reverter()
    back = reverter.text(reverter.revert("x", made.encode()))
    (document,) = split("x", back or made)
    assert same(document.parsed().value, pod)
