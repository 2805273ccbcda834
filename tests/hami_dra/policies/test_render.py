"""A policy that is shown is a file that loads, and explains every field."""

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from hami_dra.migration import Family, Json, Policy
from hami_dra.migration.family import INT32_MAX, Capacities, RequiredAnnotation, ResourceNames
from hami_dra.migration.presets import PRESETS
from hami_dra.policies import parse
from hami_dra.policies.difference import differences
from hami_dra.policies.fields import notes
from hami_dra.policies.file import document
from hami_dra.policies.render import render

texts = st.text(max_size=20) | st.sampled_from(
    ["yes", "null", "1.30", "a: b", "# c", "-", " x ", "~"]
)
names = st.sampled_from(["", "a", "no", "1.30", "null", "gpu.example.com", "1-2.3-4"])
resources = st.sampled_from(["", "a.b/c", "0.1/2", "example.com/No_1.x-y"])
words = st.sampled_from(["", "slots", "null", "Yes", "_1"])
sizes = st.sampled_from([1, 102, 103, 128, 1021, 1022, 1023, 1024, 1025])
families = st.builds(
    Family,
    name=texts,
    resources=st.builds(ResourceNames, count=resources),
    capacities=st.builds(Capacities, slots=words),
    device_class=names,
    memory_steps=st.lists(st.integers(0, INT32_MAX), max_size=3).map(tuple),
    cores_require=st.none() | st.builds(RequiredAnnotation, name=names, value=texts),
    count_means=st.sampled_from(["cards", "slices"]),
    requests_suffice=st.booleans(),
)
policies = st.builds(
    Policy,
    families=st.lists(families | st.sampled_from(list(PRESETS.values())), max_size=1).map(tuple),
    kubernetes=st.sampled_from(["", "1.30", "1.37"]),
    legacy_schedulers=st.lists(texts, max_size=2).map(tuple),
    log_level=st.sampled_from(["", "1"]),
    target_scheduler=texts,
)


def distinct(policy: Policy) -> bool:
    """Tell whether no family claims a resource twice."""
    return all(
        len(set(family.managed_names)) == len(family.managed_names) for family in policy.families
    )


@given(policies.filter(distinct))
def test_what_is_shown_loads_as_the_same_policy(policy: Policy) -> None:
    """With comments or without, and whatever the texts contain."""
    assert parse(render(document(policy), notes()), "shown") == policy
    assert parse(render(document(policy)), "shown") == policy


# Escaped, a character takes ten; YAML ends the line of a key after 1024 of them.
keys = st.text(max_size=3) | st.builds(lambda text, times: text * times, st.text(max_size=3), sizes)
scalars = st.none() | st.booleans() | st.integers() | texts
documents = st.dictionaries(
    keys,
    st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=2),
    ),
    max_size=3,
)


@given(documents)
def test_any_document_is_read_as_it_was(value: Json) -> None:
    """Whatever its keys are, long ones among them."""
    assert yaml.safe_load(render(value)) == (value or None)


def test_all_presets_together_load_as_the_same_policy() -> None:
    """The families that ship claim no resource twice."""
    policy = Policy(families=tuple(PRESETS.values()))

    assert parse(render(document(policy), notes()), "shown") == policy


def test_every_field_is_explained_once() -> None:
    """Each field of the file has its docstring above its first appearance."""
    policy = Policy(families=("nvidia", "Ascend310P"))
    shown = render(document(policy), notes())

    for path, note in notes().items():
        assert note, f"{path} has no docstring"
    words = " ".join(line.strip().removeprefix("# ") for line in shown.splitlines())
    assert all(note in words for note in notes().values())
    assert shown.count("# How messages call this family.") == 1
    assert "ruling" not in shown


def test_closed_sets_are_listed() -> None:
    """A reader sees which words a field takes."""
    assert "One of: reject, warn." in notes()[("privileged",)]


def test_the_default_policy_differs_in_nothing() -> None:
    """Differences are told from the defaults, and for a family from its preset."""
    assert differences(Policy()) == []
    assert differences(Policy(families=(PRESETS["hygon-dcu"],))) == [
        "families: hygon-dcu (default nvidia)"
    ]


def test_what_differs_is_one_line_each() -> None:
    """A field is named by its path, with the value that it has and the one it would have."""
    override: dict[str, Any] = {"preset": "hygon-dcu", "coreUnits": 60, "memorySteps": [1, 2]}
    rule = {"name": "a", "value": "b"}
    policy = Policy.model_validate(
        {"families": ["nvidia", {**override, "coresRequire": rule}], "hideCards": True}
    )

    assert differences(policy) == [
        "families: nvidia, hygon-dcu (default nvidia)",
        "families[1].memorySteps: [1, 2] (default [])",
        "families[1].coreUnits: 60 (default 0)",
        "families[1].coresRequire: name=a, value=b (default none)",
        "hideCards: true (default false)",
    ]
