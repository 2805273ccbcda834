"""What manifests are converted for: a policy file, an inventory of cards, a live cluster."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hami_dra.cli.app import app
from hami_dra.migration import Json
from hami_dra.migration.names import DRIVER
from hami_dra.node.devices import resource_slice
from hami_dra.node.simulated import cards
from tests.hami_dra.kube.api_double import ApiDouble

HEAD = "apiVersion: hami-dra.io/v1alpha1\nkind: Policy\n"


def pod(**limits: object) -> str:
    named = {f"nvidia.com/{name}": amount for name, amount in limits.items()}
    container = {"name": "c", "resources": {"limits": named}}
    return json.dumps({"kind": "Pod", "spec": {"containers": [container]}})


HALF = pod(gpu=1, **{"gpumem-percentage": 50})


def convert(text: str, *arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, ["convert", "-f", "-", *arguments], input=text, env=env)


def a_slice(profile: str, node: str, driver: str = DRIVER) -> Json:
    return resource_slice(cards(profile, 2, node), node=node, node_uid="u", driver=driver)


def test_a_policy_file_decides(tmp_path: Path) -> None:
    """Resource names and defaults come from the file, by flag or by environment."""
    file = tmp_path / "policy.yaml"
    file.write_text(f"{HEAD}families: [{{defaultMemory: 4000}}]\n")

    by_flag = convert(pod(gpu=1, gpucores=10), "--policy", str(file))
    by_environment = convert(pod(gpu=1, gpucores=10), env={"HAMI_DRA_POLICY": str(file)})

    assert '"memory": "4000Mi"' in by_flag.stdout
    assert by_environment.stdout == by_flag.stdout


def test_a_wrong_policy_file_ends_the_command(tmp_path: Path) -> None:
    """Nothing is converted by a policy that means something else than was written."""
    file = tmp_path / "policy.yaml"
    file.write_text(f"{HEAD}familys: []\n")

    result = convert(HALF, "--policy", str(file))

    assert (result.exit_code, result.stdout) == (1, "")
    assert f"{file}:3: familys: unknown key, did you mean families?" in result.stderr


def test_a_named_version_wins_over_the_policys(tmp_path: Path) -> None:
    """The command line is nearer than the file."""
    file = tmp_path / "policy.yaml"
    file.write_text(f'{HEAD}kubernetes: "1.35"\n')

    assert "gpu-1" in convert(pod(gpu=2), "--policy", str(file)).stdout
    assert (
        "gpu-1" not in convert(pod(gpu=2), "--policy", str(file), "--kube-version", "1.37").stdout
    )


INVENTORIES = {
    "a list of cards": "cards:\n- {model: NVIDIA L4, memory: 23034Mi, count: 8}\n",
    "one slice": json.dumps(a_slice("l4-24g", "n1")),
    "a List": json.dumps({"kind": "List", "items": [a_slice("l4-24g", n) for n in ("a", "b")]}),
    "a typed list": json.dumps(
        {
            "kind": "ResourceSliceList",
            "items": [{k: v for k, v in a_slice("l4-24g", "n").items() if k != "kind"}],
        }
    ),
    "several documents": "---\n".join(
        f"{json.dumps(each)}\n"
        for each in (a_slice("l4-24g", "n1"), a_slice("h100-80g", "n2", driver="other.example"))
    ),
}


@pytest.mark.parametrize("text", INVENTORIES.values(), ids=INVENTORIES.keys())
def test_percentages_are_resolved_by_an_inventory(text: str, tmp_path: Path) -> None:
    """Half of the only card that our driver has is an amount, in every form of inventory."""
    file = tmp_path / "cards"
    file.write_text(text)

    result = convert(HALF, "--inventory", str(file))

    assert '"memory": "11517Mi"' in result.stdout
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "found 0 ResourceSlices and no shareable card"),
        (json.dumps(a_slice("l4-24g", "n", driver="x")), "found 1 ResourceSlices and no shareable"),
        ("kind: Pod\n", "found Pod, expected what kubectl get resourceslices -o yaml prints"),
        ("- 1\n", "found something else, expected"),
        ("kind: ResourceSlice\n", "found a ResourceSlice without 'spec', expected spec.driver"),
        ("cards: []\n", "expected what kubectl"),
        ("cards: [{memory: 1Gi}]\nkind: x\n", "expected what kubectl"),
        ("cards: [{memory: 1Gi}, {model: L4}]\n", "cards[1]: found {'model': 'L4'}, expected mem"),
        ("cards: [{memory: 1Gi, size: 2}]\n", "cards[0].size: unknown key, expected model, memory"),
        ("cards: [{memory: lots}]\n", "cards[0].memory: "),
        ("cards: [{memory: 81920}]\n", "found 81920 bytes, expected at least 1 MiB; did you mean"),
        ("a: [", "cards:2:1: not YAML"),
    ],
)
def test_an_inventory_without_cards_is_refused(text: str, said: str, tmp_path: Path) -> None:
    """A wrong file is better noticed than taken for a cluster without cards."""
    file = tmp_path / "cards"
    file.write_text(text)

    result = convert(HALF, "--inventory", str(file))

    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr


async def test_a_live_cluster_tells_cards_and_version(tmp_path: Path) -> None:
    """One read of version and slices replaces --kube-version and --inventory."""
    async with ApiDouble().serving() as api:
        await api.put("resourceslices", a_slice("a100-80g", "n1"))
        await api.put("resourceslices", a_slice("h100-80g", "n2", driver="other.example"))
        config = api.write_kubeconfig(tmp_path / "kubeconfig")
        text = pod(gpu=2, **{"gpumem-percentage": 50})

        result = await asyncio.to_thread(convert, text, "--kubeconfig", str(config))
        older = await asyncio.to_thread(
            convert, text, "--kubeconfig", str(config), "--kube-version", "1.35"
        )

    assert '"memory": "40960Mi"' in result.stdout
    assert (result.exit_code, result.stderr) == (0, "")
    assert "gpu-1" in older.stdout
    assert {call.split()[0] for call in api.calls} == {"GET"}


async def test_a_cluster_that_refuses_or_is_not_there_ends_the_command(tmp_path: Path) -> None:
    """The message names the cluster's answer, or what was looked for."""
    async with ApiDouble().serving() as api:
        config = api.write_kubeconfig(tmp_path / "kubeconfig")
        api.fail("GET /apis/resource.k8s.io/v1/resourceslices", 403)
        refused = await asyncio.to_thread(convert, HALF, "--kubeconfig", str(config))
    gone, missing, unknown = [
        await asyncio.to_thread(convert, HALF, "--kubeconfig", *arguments)
        for arguments in (
            [str(config)],
            [str(tmp_path / "none")],
            [str(config), "--context", "elsewhere"],
        )
    ]

    for result in (refused, gone, missing, unknown):
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("hami-dra: cluster: ")
    assert "403" in refused.stderr


def test_cards_come_from_one_place() -> None:
    """A file and a cluster cannot both be right."""
    for live in ("--context", "--kubeconfig"):
        result = convert(HALF, "--inventory", "cards.yaml", live, "x")

        assert result.exit_code == 2
        assert "expected one of them" in result.stderr


HEAVY = ("kubernetes", "aiohttp", "fastapi", "asyncio", "uvicorn")


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["convert", "-f", "-"], ["revert", "-f", "-"], ["policy", "show"], ["version"]],
)
def test_offline_commands_import_no_client_and_no_server(arguments: list[str]) -> None:
    """A conversion in a pipeline starts in the time that it needs itself."""
    program = (
        "import sys\nfrom hami_dra.cli.app import app\n"
        f"try:\n    app({arguments!r})\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )

    ran = subprocess.run(
        [sys.executable, "-c", program], input=HALF, capture_output=True, text=True, check=True
    )

    assert ran.stderr.splitlines()[-1] == "[]"


def test_help_imports_nothing_that_it_does_not_print() -> None:
    """Neither the models of policies nor a parser of YAML are needed for a list of commands."""
    program = (
        "import sys\nfrom hami_dra.cli.app import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print([n for n in {(*HEAVY, 'pydantic', 'yaml', 'jsonpatch')!r} if n in sys.modules])\n"
    )

    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert ran.stdout.splitlines()[-1] == "[]"


def test_every_help_teaches_by_example() -> None:
    """Each command shows a line that can be typed."""
    commands = (
        *([name] for name in COMMANDS),
        *(["policy", name] for name in POLICY),
    )
    for command in commands:
        shown = CliRunner().invoke(app, [*command, "--help"]).stdout

        assert "Example" in shown, command


COMMANDS = (
    *("convert", "diff", "explain", "revert", "version"),
    *("install", "uninstall", "audit", "preflight", "prune", "quota"),
)
POLICY = ("show", "check", "schema", "presets", "import")


def test_completion_can_be_installed() -> None:
    """Shells complete the commands and flags."""
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).stdout
