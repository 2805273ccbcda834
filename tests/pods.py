"""Pods as hypothesis draws them: legacy keys often, and always fields that nobody knows."""

import jsonpatch
from hypothesis import strategies as st

from hami_dra.migration import Cards, Family, Json, Migration, Policy, RejectedPod, migrate

POLICY = Policy(kubernetes="1.37")
CARDS = Cards(frozenset({24564, 81920}))
MANAGED = POLICY.managed_names
ANNOTATIONS = tuple(Family().annotations.model_dump().values())

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
anything = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
unknown = st.dictionaries(st.from_regex(r"x[a-z]{1,5}", fullmatch=True), anything, max_size=2)
amounts = st.sampled_from(
    [0, 1, 2, 30, 100, 120, "1k", "1000m", "8Gi", "-1", "0.5", "x", 4096, None]
)
resources: st.SearchStrategy[Json] = st.dictionaries(
    st.sampled_from([*MANAGED, "cpu"]), amounts, max_size=4
)
sensible: st.SearchStrategy[Json] = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.just(1),
        "nvidia.com/gpu": st.sampled_from([0, 1, 1, 2, "2", 3]),
        "nvidia.com/gpumem": st.integers(0, 99_999) | st.sampled_from(["8k", "2Ki"]),
        "nvidia.com/gpumem-percentage": st.integers(0, 100),
        "nvidia.com/gpucores": st.integers(0, 120),
        "nvidia.com/priority": st.integers(0, 1),
    },
)
choices = st.dictionaries(
    st.sampled_from(ANNOTATIONS),
    st.text(max_size=8) | st.sampled_from(["a100, H100", "GPU-a", " , "]),
)


@st.composite
def containers(draw: st.DrawFn) -> Json:
    if draw(st.integers(0, 3)):
        limits = draw(sensible)
        # A copy: JSON has no shared objects, and a patch on one of two would edit both.
        asked = draw(st.sampled_from([{}, dict(limits)]))
    else:
        limits = draw(resources)
        asked = draw(resources)
    inside: Json = {**draw(unknown), "limits": limits, "requests": asked}
    return {**draw(unknown), "image": "i", "resources": inside}


@st.composite
def pods(draw: st.DrawFn) -> Json:
    """Draw pods that often carry legacy keys and always carry fields that nobody knows."""
    drawn = draw(st.lists(containers(), min_size=1, max_size=3))
    named = [{**container, "name": f"c{index}"} for index, container in enumerate(drawn)]
    split = draw(st.integers(0, len(named) - 1))
    spec = {**draw(unknown), "initContainers": named[:split], "containers": named[split:]}
    metadata = {**draw(unknown), "name": "p", "annotations": draw(choices)}
    return {**draw(unknown), "kind": "Pod", "metadata": metadata, "spec": spec}


def migrated(pod: Json) -> tuple[Migration, Json] | None:
    """Migrate a pod; None if it is rejected."""
    try:
        migration = migrate(pod, POLICY, CARDS)
    except RejectedPod:
        return None
    return migration, jsonpatch.apply_patch(pod, migration.patch)


@st.composite
def rows(draw: st.DrawFn) -> Json:
    """Draw pods of init containers, sidecars and app containers, which often ask for the same."""
    memory = st.sampled_from([{}, *({"nvidia.com/gpumem": size} for size in (1000, 2000))])
    named: list[Json] = [
        {"name": f"c{index}", "resources": {"limits": draw(memory)}} for index in range(5)
    ]
    for container in named[:3]:
        container.update(draw(st.sampled_from([{}, {"restartPolicy": "Always"}])))
    return {"spec": {"initContainers": named[:3], "containers": named[3:]}}
