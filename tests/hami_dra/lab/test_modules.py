"""A version of Kubernetes is chosen by the module files that exist."""

from pathlib import Path

import pytest

from hami_dra.lab import modules
from hami_dra.lab.failure import LabError


def written(folder: Path, **versions: str) -> Path:
    """Write one module file for each name, `go` or `go_1_36`."""
    for name, version in versions.items():
        stem = name.replace("_", "-", 1).replace("_", ".")
        text = f"module x\n\nrequire (\n\tk8s.io/kubernetes v{version}\n)\n"
        (folder / f"{stem}.mod").write_text(text)
    return folder


@pytest.mark.parametrize("asked", ["1.36", "1.36.3"])
def test_another_version_has_a_module_file_of_its_own(tmp_path: Path, asked: str) -> None:
    source = written(tmp_path, go="1.37.2", go_1_36="1.36.3")

    module = modules.choose(source, asked)

    assert module == modules.Module("1.36.3", source / "go-1.36.mod")
    assert module.checksums == source / "go-1.36.sum"


@pytest.mark.parametrize("asked", ["1.35", "1.36.4", "1.3", "1", ""])
def test_the_error_names_the_versions_that_exist(tmp_path: Path, asked: str) -> None:
    source = written(tmp_path, go="1.37.2", go_1_36="1.36.3")

    with pytest.raises(LabError, match=r"found 1\.37\.2, 1\.36\.3 in"):
        modules.choose(source, asked)


def test_a_module_file_without_kubernetes_is_named(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("module x\n")

    with pytest.raises(LabError, match=r"go\.mod: found no requirement"):
        modules.available(tmp_path)


def test_the_checkout_holds_the_default_version() -> None:
    module = modules.choose(modules.source_directory(), modules.DEFAULT)

    assert module.file.name == "go.mod"
    assert module.checksums.is_file()


def test_a_source_that_is_not_there_is_an_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an installed wheel, which holds no Go source."""
    monkeypatch.setenv(modules.SOURCE_VARIABLE, str(tmp_path))

    with pytest.raises(LabError, match=r"run from a checkout.*KUBEBUILDER_ASSETS"):
        modules.source_directory()
