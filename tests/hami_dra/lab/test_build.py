"""The binary is built once for each change of its inputs; a small script plays the compiler."""

import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_dra.lab import build
from hami_dra.lab.build import Builder, linker_flags
from hami_dra.lab.cache import cache_key
from hami_dra.lab.failure import LabError
from hami_dra.lab.modules import Module

# Writes what it was called with to its output; appends a line to the file `builds` beside it.
_COMPILER = """\
    #!/bin/sh
    if [ "$1" = env ]; then echo go1.26.6 linux amd64; exit; fi
    echo built >> "$(dirname "$0")/builds"
    until [ "$1" = -o ]; do shift; done
    echo binary > "$2"
"""

inputs = st.dictionaries(st.text(max_size=5), st.binary(max_size=5), max_size=4)


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    source = tmp_path / "source"
    source.mkdir()
    (source / "part").mkdir()
    for name in ("main.go", "part/part.go", "go.mod", "go.sum"):
        (source / name).write_text(name)
    return Builder(script(tmp_path / "go", _COMPILER), source, tmp_path / "cache")


def script(path: Path, text: str) -> Path:
    path.write_text(textwrap.dedent(text))
    path.chmod(0o755)
    return path


def module(builder: Builder) -> Module:
    return Module("1.37.2", builder.source / "go.mod")


def builds(builder: Builder) -> int:
    """Count how often the compiler ran."""
    return len((builder.go.parent / "builds").read_text().splitlines())


def kept(builder: Builder) -> set[str]:
    """Name what the cache holds, apart from the lock."""
    return {path.name for path in builder.cache.iterdir()} - {".lock"}


def test_the_result_looks_like_a_folder_of_prebuilt_programs(builder: Builder) -> None:
    binary = builder.binary(module(builder))

    assert binary.read_text() == "binary\n"
    for name in (*build.CONTROL_PLANE, "kubelet"):
        assert (binary.parent / name).resolve() == binary


def test_the_same_inputs_are_built_once(builder: Builder) -> None:
    first = builder.binary(module(builder))

    assert builder.binary(module(builder)) == first
    assert builds(builder) == 1


@pytest.mark.parametrize("changed", ["main.go", "part/part.go", "go.mod", "go.sum"])
def test_a_changed_source_is_built_anew_and_replaces_the_old(
    builder: Builder, changed: str
) -> None:
    old = builder.binary(module(builder))
    (builder.source / changed).write_text("changed")

    new = builder.binary(module(builder))

    assert new != old
    assert kept(builder) == {new.parent.name}


def test_another_compiler_is_another_key(builder: Builder) -> None:
    old = builder.binary(module(builder))
    script(builder.go, _COMPILER.replace("1.26.6", "1.26.7"))

    assert builder.binary(module(builder)) != old


def test_another_version_of_kubernetes_is_kept_beside(builder: Builder) -> None:
    first = builder.binary(module(builder))
    second = builder.binary(Module("1.36.3", builder.source / "go.mod"))

    assert kept(builder) == {first.parent.name, second.parent.name}


def test_builds_at_one_time_are_one_build(builder: Builder) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = set(pool.map(builder.binary, [module(builder)] * 4))

    assert len(results) == 1
    assert builds(builder) == 1


def test_what_a_killed_build_left_is_removed(builder: Builder) -> None:
    (builder.cache / ".building-x" / "result").mkdir(parents=True)

    binary = builder.binary(module(builder))

    assert kept(builder) == {binary.parent.name}


def test_a_failed_build_shows_the_compiler_and_leaves_nothing(
    builder: Builder, capfd: pytest.CaptureFixture[str]
) -> None:
    failing = _COMPILER.replace("echo binary", "echo main.go:7: no such thing >&2; exit 3; echo")
    script(builder.go, failing)

    with pytest.raises(LabError, match=r"exit code 3(.|\n)*main\.go:7: no such thing"):
        builder.binary(module(builder))

    assert kept(builder) == set()
    assert "failed after 0:00" in capfd.readouterr().err


def test_progress_says_how_long_the_first_build_takes(
    builder: Builder, capfd: pytest.CaptureFixture[str]
) -> None:
    builder.binary(module(builder))

    said = capfd.readouterr().err
    assert "building Kubernetes 1.37.2 (first build: 6-15 min on 2 cores)" in said
    assert "done after 0:00" in said


@given(inputs, inputs)
def test_keys_are_equal_only_for_equal_inputs(
    first: dict[str, bytes], second: dict[str, bytes]
) -> None:
    assert (cache_key(first) == cache_key(second)) == (first == second)


def test_the_linker_states_the_version() -> None:
    package = "-X k8s.io/component-base/version."

    assert linker_flags("1.37.2") == (
        f"-s -w {package}gitVersion=v1.37.2 {package}gitMajor=1 {package}gitMinor=37"
    )


@pytest.fixture
def prebuilt(tmp_path: Path) -> Path:
    folder = tmp_path / "prebuilt"
    folder.mkdir()
    for name in build.CONTROL_PLANE:
        script(folder / name, "#!/bin/sh\necho Kubernetes v1.36.3\n")
    return folder


@pytest.mark.parametrize("asked", [None, "1.36", "1.36.3"])
def test_prebuilt_programs_say_their_version(prebuilt: Path, asked: str | None) -> None:
    assert build.prebuilt_assets(prebuilt, asked) == build.Assets(prebuilt, "1.36.3")


def test_prebuilt_programs_of_another_version_are_refused(prebuilt: Path) -> None:
    with pytest.raises(LabError, match=r"found Kubernetes 1\.36\.3, expected 1\.37"):
        build.prebuilt_assets(prebuilt, "1.37")


def test_a_missing_prebuilt_program_is_named(prebuilt: Path) -> None:
    (prebuilt / "kube-scheduler").unlink()

    with pytest.raises(LabError, match="found no program kube-scheduler, expected"):
        build.prebuilt_assets(prebuilt, None)


def test_a_version_that_cannot_be_read_is_an_error(prebuilt: Path) -> None:
    """As of a plain `go build`, which states v0.0.0-master+$Format."""
    script(prebuilt / "kube-apiserver", "#!/bin/sh\necho no version\n")

    with pytest.raises(LabError, match="found 'no version', expected"):
        build.prebuilt_assets(prebuilt, None)


def test_the_environment_names_prebuilt_programs(
    prebuilt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(build.ASSETS_VARIABLE, str(prebuilt))

    assert build.assets() == build.Assets(prebuilt, "1.36.3")


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")

    assert build.cache_directory() == Path("/elsewhere/hami-dra/cluster")
