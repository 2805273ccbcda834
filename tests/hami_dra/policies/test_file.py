"""A policy file loads, or everything that is wrong with it is said in its own words."""

from pathlib import Path

import pytest

from hami_dra.migration import Policy
from hami_dra.policies import PolicyFileError, load, parse

HEAD = "apiVersion: hami-dra.io/v1alpha1\nkind: Policy\n"


def problems(text: str, head: str = HEAD) -> list[str]:
    """Return what is said of a file, without its name."""
    with pytest.raises(PolicyFileError) as caught:
        parse(head + text, "p.yaml")
    return [line.removeprefix("p.yaml:") for line in str(caught.value).splitlines()]


def test_a_file_with_nothing_but_its_head_is_the_default_policy() -> None:
    """What a file does not say stays as it is by default."""
    assert parse(HEAD, "p.yaml") == Policy()


def test_families_are_presets_with_fields_on_top() -> None:
    """A preset is named bare or with fields that differ, nested ones member by member."""
    policy = parse(
        HEAD + "families:\n- Ascend310P\n"
        "- {preset: hygon-dcu, coreUnits: 60, resources: {count: h/n}}\n- {defaultMemory: 5}\n",
        "p.yaml",
    )

    ascend, hygon, nvidia = policy.families
    assert (ascend.name, hygon.name, nvidia.name) == ("Ascend310P", "hygon-dcu", "nvidia")
    assert (hygon.core_units, hygon.resources.count) == (60, "h/n")
    assert hygon.resources.memory == "hygon.com/dcumem"
    assert nvidia.default_memory == 5


def test_json_is_yaml() -> None:
    """A policy written as JSON, with anchors of YAML or without, is one like any other."""
    text = '{"apiVersion": "hami-dra.io/v1alpha1", "kind": "Policy", "hideCards": true}'
    anchored = HEAD + "legacySchedulers: &them [a]\nhideCards: true\n"

    assert parse(text, "p.json").hide_cards
    assert parse(anchored, "p.yaml").legacy_schedulers == ("a",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hideCard: true\n", "3: hideCard: unknown key, did you mean hideCards?"),
        (
            "families:\n- nvidia\n- preset: hygon-dcu\n  capacities: {slotz: x}\n",
            "6: families[1].capacities.slotz: unknown key, did you mean slots?",
        ),
        (
            "legacy_schedulers: []\n",
            "3: legacy_schedulers: unknown key, did you mean legacySchedul",
        ),
        ("families: [{default_cores: 1}]\n", "did you mean defaultCores?"),
        (
            "hints: {x: 1}\n",
            "3: hints.x: unknown key, expected one of: gpuPolicy, nodePolicy, weig",
        ),
        (
            "families: [foo]\n",
            "3: families[0]: found preset 'foo', expected one of: nvidia, Ascend",
        ),
        ("families: [{preset: foo}]\n", "3: families[0]: found preset 'foo', expected one of:"),
        ("families: nvidia\n", "3: families: found 'nvidia', expected a list"),
        ("families: [null]\n", "3: families[0]: found nothing, expected an object"),
        ("families: [{coresRequire: {name: a}}]\n", "coresRequire.value: missing"),
        (
            "kubernetes: 1.30\n",
            '3: kubernetes: found 1.30 without quotes, expected text; write "1.',
        ),
        ("kubernetes: new\n", "3: kubernetes: found 'new', expected a version such as \"1.37\""),
        ("privileged: allow\n", "3: privileged: found 'allow', expected 'reject' or 'warn'"),
        ("hideCards: 'yes'\n", "3: hideCards: found 'yes', expected true or false; write true"),
        ("hideCards: 7\n", "3: hideCards: found the number 7, expected true or false"),
        ("families: [{coreUnits: '30'}]\n", "found '30', expected a whole number; write 30"),
        ("families: [{coreUnits: 1.5}]\n", "found the number 1.5, expected a whole number"),
        ("families: [{countMultiple: true}]\n", "found true, expected a whole number; write 1"),
        ("families: [{defaultMemory: -1}]\n", "found the number -1, expected at least 0"),
        ("families: [{defaultMemory: 3000000000}]\n", "expected at most 2147483647"),
        ("families: [{driver: 5}]\n", "families[0].driver: found 5 without quotes, expected text"),
        ("hints: {weights: [a]}\n", "3: hints.weights: found a list, expected text"),
        ("hints:\n", "3: hints: found nothing, expected an object"),
        ("hideCards: {}\n", "3: hideCards: found an object, expected true or false"),
        ("kubernetes: 2026-02-30\n", "3: kubernetes: found '2026-02-30', which is no value of"),
        ("legacySchedulers: [2026-13-01]\n", "3: legacySchedulers[0]: found '2026-13-01', which"),
        ("runtimeClass: 2026-01-02\n", "3: runtimeClass: found 2026-01-02, expected text"),
        ("hideCards: !!bool x\n", "3: hideCards: found 'x', which is no value of the kind"),
        ("families: [{coreUnits: !!int x}]\n", "coreUnits: found 'x', which is no value of"),
        (
            f"families: [{{coreUnits: {'9' * 5000}}}]\n",
            "found '99999999999999999999…', which is no",
        ),
    ],
)
def test_a_wrong_field_is_named_with_line_path_and_remedy(text: str, said: str) -> None:
    """Each message says where, what was found, what was expected and what to write."""
    (found,) = problems(text)

    assert said in found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1\nb: 2", "2: column 2: not YAML: while parsing a flow sequence"),
        ("a: b: c\n", "1: column 5: not YAML: mapping values are not allowed here"),
        ("\ta: 1", "1: column 1: not YAML"),
        ("a: \x00", "1: unacceptable character"),
        ("a: 1\n---\nb: 1\n", "2: column 1: not YAML: expected a single document"),
        ("a: !x 1\n", "1: column 4: not YAML: could not determine a constructor"),
        ("", "1: found nothing, expected a policy; start with apiVersion: hami-dra.io/v1alpha1"),
        ("- a\n", "1: found a list, expected a policy"),
    ],
)
def test_what_is_no_document_is_refused_with_line_and_column(text: str, said: str) -> None:
    """A slip of YAML is shown where it is."""
    (found,) = problems(text, head="")

    assert said in found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("families: [{resources: {count: gpu}}]\n", "resources.count: found 'gpu', expected a res"),
        ("families: [{resources: {memory: a.b/c d}}]\n", "resources.memory: found 'a.b/c d', exp"),
        ("families: [{annotations: {useType: a//b}}]\n", "annotations.useType: found 'a//b', exp"),
        ("families: [{deviceClass: HAMi}]\n", "deviceClass: found 'HAMi', expected a name such as"),
        ("families: [{migDeviceClass: a_b}]\n", "migDeviceClass: found 'a_b', expected a name"),
        (f"families: [{{driver: {'a' * 64}}}]\n", "expected a driver such as gpu.example.com"),
        ("families: [{entryPrefix: GPU_}]\n", "entryPrefix: found 'GPU_', expected lower-case"),
        ("families: [{entryPrefix: ''}]\n", "entryPrefix: found '', expected lower-case"),
        ("families: [{typeAttribute: a-b}]\n", "typeAttribute: found 'a-b', expected a word"),
        ("families: [{capacities: {memory: a.b/m}}]\n", "capacities.memory: found 'a.b/m', exp"),
        ("families: [{visibleVariable: A=B}]\n", "visibleVariable: found 'A=B', expected print"),
        ("families: [{coresRequire: {name: a b, value: x}}]\n", "coresRequire.name: found 'a b'"),
        ("hints: {weights: '\\U0001F600/a'}\n", "hints.weights: found"),
        ("runtimeClass: NVIDIA\n", "3: runtimeClass: found 'NVIDIA', expected a name such as"),
    ],
)
def test_a_name_that_the_api_server_refuses_is_told_before_a_pod_is_refused(
    text: str, said: str
) -> None:
    """Or every pod of the family would be refused, by messages about claims."""
    (found,) = problems(text)

    assert said in found


def test_every_name_that_the_api_server_takes_may_be_one() -> None:
    """Odd ones too."""
    policy = parse(
        HEAD
        + "families: [{resources: {count: 0.a/B_c.d-1, memory: ''}, driver: GPU.example.com,"
        + " annotations: {useType: Example.COM/Use_Type, mode: ''}, entryPrefix: 1g-2}]\n",
        "p.yaml",
    )

    assert policy.families[0].resources.count == "0.a/B_c.d-1"


def bomb(levels: int) -> str:
    """Write a few lines that hold ten to the power of levels values."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, levels):
        inner = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} [{inner}]")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (bomb(10), "found more than 100000 values, expected the few of a policy"),
        ("a: " + "[" * 1000, "nested too deeply"),
        ("a: " + "[" * 1000 + "]" * 1000, "nested too deeply"),
        ("a: " + "{b: " * 1000 + "}" * 1000, "nested too deeply"),
    ],
)
def test_what_nobody_could_hold_in_memory_is_refused(text: str, said: str) -> None:
    """A few lines may stand for more than a machine holds."""
    (found,) = problems(text)

    assert said in found


def test_version_and_kind_are_required() -> None:
    """A file that does not say what it is, or says something else, is not a policy."""
    assert problems("apiVersion: v1\n", head="") == [
        "1: apiVersion: found 'v1', expected hami-dra.io/v1alpha1",
        "1: missing kind; write kind: Policy",
    ]


def test_all_problems_are_told_at_once_in_the_order_of_the_file() -> None:
    """Nobody wants to mend a file line by line."""
    found = problems("hideCards: 3\nprivileged: 1\nhideCards: true\nx: 1\nhints: {? [a] : b}\n")

    assert [line.split(":")[0] for line in found] == ["3", "4", "5", "6", "7"]
    assert found[2] == "5: hideCards: found twice, first in line 3; keep one of them"
    assert "found a list or an object as a key" in found[4]


def test_an_alias_of_what_is_around_it_is_refused() -> None:
    """A document without an end has no meaning."""
    assert "3: hints.x: found an alias of what is around" in problems("hints: &h\n  x: *h\n")[0]


def test_a_merge_is_refused_and_not_taken_for_a_key() -> None:
    """An import of HAMi's configuration would lose what it brings in."""
    assert problems("families: [{<<: {defaultMemory: 5}}]\n") == [
        "3: families[0].<<: found a merge, expected keys; write out what it stands for"
    ]


def test_a_resource_belongs_to_one_family() -> None:
    """Two families with one resource, or one name, could not be told apart."""
    text = "families:\n- nvidia\n- {preset: hygon-dcu, resources: {count: nvidia.com/gpu}}\n"

    (twice,) = problems(text)
    assert twice.startswith("5: families[1].resources.count: found 'nvidia.com/gpu', which is fam")
    assert problems("families: [nvidia, nvidia]\n") == [
        "3: families[1].name: found 'nvidia', which is the name of families[0] too"
    ]
    assert (
        "resources.cores: found 'a'"
        in problems("families: [{resources: {memory: a, cores: a}}]\n")[0]
    )


def test_a_file_is_read_from_disk(tmp_path: Path) -> None:
    """A file that is there is loaded; one that is not, or is no text, is named."""
    file = tmp_path / "p.yaml"
    file.write_text(HEAD + "hideCards: true\n")
    assert load(file).hide_cards

    file.write_bytes(b"\xff")
    with pytest.raises(PolicyFileError, match=r"p\.yaml: byte 0 is not UTF-8"):
        load(file)
    with pytest.raises(PolicyFileError, match=r"No such file.*name a readable policy file"):
        load(tmp_path / "none.yaml")
