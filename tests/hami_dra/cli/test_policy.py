"""`hami-dra policy`: what a person who writes a policy file sees."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hami_dra.cli.app import app
from hami_dra.migration import Policy
from hami_dra.migration.presets import PRESETS
from hami_dra.policies import parse

HEAD = "apiVersion: hami-dra.io/v1alpha1\nkind: Policy\n"


def policy(*arguments: str, stdin: str = "", env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, ["policy", *arguments], input=stdin, env=env)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "policy.yaml"
    found.write_text(HEAD + "hideCards: true\n")
    return found


def test_show_prints_a_commented_file_that_loads(file: Path) -> None:
    """The output is the whole effective policy, whether named by flag or by environment."""
    default = policy("show")
    named = policy("show", "--policy", str(file))
    by_environment = policy("show", env={"HAMI_DRA_POLICY": str(file)})

    assert parse(default.stdout, "shown") == Policy()
    assert parse(named.stdout, "shown") == Policy(hide_cards=True)
    assert by_environment.stdout == named.stdout
    assert "# RuntimeClass of GPU pods that name none" in default.stdout


def test_check_says_what_a_file_changes(file: Path) -> None:
    """A file that can be used ends well, with one line for each difference."""
    found = policy("check", str(file))

    assert (found.exit_code, found.stdout) == (0, "hideCards: true (default false)\n")

    file.write_text(HEAD)
    assert policy("check", str(file)).stdout == f"{file}: nothing differs from the defaults\n"


def test_check_lists_every_problem(file: Path) -> None:
    """A file that cannot be used ends with 1, on standard error."""
    file.write_text(HEAD + "hideCard: true\nprivileged: 1\n")

    found = policy("check", str(file))

    assert (found.exit_code, found.stdout) == (1, "")
    assert f"{file}:3: hideCard: unknown key, did you mean hideCards?\n" in found.stderr
    assert f"{file}:4: privileged: found the number 1" in found.stderr


def test_schema_is_json() -> None:
    """Editors get a JSON Schema."""
    assert json.loads(policy("schema").stdout)["title"] == "hami-dra Policy"


def test_presets_lists_every_family() -> None:
    """Each line has a name that a policy can use, a DeviceClass and the resources."""
    lines = policy("presets").stdout.splitlines()

    assert [line.split()[0] for line in lines[1:]] == list(PRESETS)
    assert "hygon.com/dcunum hygon.com/dcumem hygon.com/dcucores" in policy("presets").stdout
    assert "(none)" in lines[-1]


def test_import_prints_a_policy_and_says_what_it_does_not_hold() -> None:
    """The policy goes to standard output, remarks go to standard error."""
    config = "nvidia: {resourceCountName: nvidia.com/gpu, deviceSplitCount: 10}\n"

    found = policy("import", "-", stdin=config)

    assert found.exit_code == 0
    assert parse(found.stdout, "imported").families[0].resources.count == "nvidia.com/gpu"
    assert found.stderr.startswith("nvidia.deviceSplitCount: left out")


@pytest.mark.parametrize(("name", "said"), [("-", "found a list"), ("no-such-file", "No such")])
def test_import_refuses_what_it_cannot_read(name: str, said: str) -> None:
    """Nothing is printed for a file that is missing or something else."""
    found = policy("import", name, stdin="- a\n")

    assert (found.exit_code, found.stdout) == (1, "")
    assert said in found.stderr
