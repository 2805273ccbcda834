"""`hami-dra quota`: who takes how much of what, for people and for programs."""

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path

from typer.testing import CliRunner, Result

from hami_dra.cli.app import app
from hami_dra.migration import Json
from hami_dra.migration.names import DRIVER
from hami_dra.node.devices import resource_slice
from hami_dra.node.simulated import cards
from tests.hami_dra.kube.api_double import SLICES, ApiDouble


def quota(namespace: str, **hard: object) -> Json:
    amounts = {f"limits.nvidia.com/{name}": str(amount) for name, amount in hard.items()}
    metadata = {"name": "gpus", "namespace": namespace, "uid": f"q-{namespace}"}
    return {"metadata": metadata, "spec": {"hard": amounts}}


def claim(namespace: str, name: str, memory: str | None, pod: str = "") -> Json:
    exactly: Json = {"deviceClassName": DRIVER}
    if memory:
        exactly["capacity"] = {"requests": {"memory": memory, "cores": "0"}}
    owners = [{"kind": "Pod", "name": pod}] if pod else []
    metadata = {"name": name, "namespace": namespace, "uid": name, "ownerReferences": owners}
    return {
        "metadata": metadata,
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


OBJECTS = {
    "resourcequotas": [
        quota("team", gpumem=16000, gpucores=100),
        quota("other", gpumem=0),
        quota("percent", **{"gpumem-percentage": 10}),
    ],
    "resourceclaims": [
        claim("team", "c1", "8000Mi", "train-0"),
        claim("team", "c2", "4000Mi", "train-1"),
        claim("team", "by-hand", "1000Mi"),
        claim("other", "c1", None),
    ],
}


def show(
    directory: Path,
    *arguments: str,
    cards_of: str = "l4-24g",
    more: Iterable[Json] = (),
    refused: str = "",
) -> Result:
    """Run the command against a cluster that holds the objects above."""

    async def serve() -> Result:
        async with ApiDouble().serving() as api:
            for kind, items in OBJECTS.items():
                for item in items:
                    await api.put(kind, item)
            for item in more:
                await api.put("resourceclaims", item)
            if cards_of:
                found = cards(cards_of, 1, "n")
                await api.put(
                    "resourceslices", resource_slice(found, node="n", node_uid="u", driver=DRIVER)
                )
            if refused:
                api.fail(refused, 403)
            config = api.write_kubeconfig(directory / "kubeconfig")
            line = ["quota", "--kubeconfig", str(config), *arguments]
            return await asyncio.to_thread(CliRunner().invoke, app, line)

    return asyncio.run(serve())


def test_a_table_says_who_takes_what(tmp_path: Path) -> None:
    result = show(tmp_path, "-n", "team")

    assert result.exit_code == 0, result.output
    rows = [line.split("  ") for line in result.stdout.splitlines()]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert cells == [
        ["NAMESPACE", "QUOTA", "KEY", "USED", "HARD", "PERCENT", "PODS"],
        ["team", "gpus", "limits.nvidia.com/gpucores", "0 percent", "100 percent", "0 %", "-"],
        [
            *("team", "gpus", "limits.nvidia.com/gpumem", "13000 MiB", "16000 MiB", "81.2 %"),
            "train-0 (8000), train-1 (4000), claim by-hand (1000)",
        ],
    ]


def test_json_of_all_namespaces_is_for_programs(tmp_path: Path) -> None:
    result = show(tmp_path, "-A", "-o", "json")

    other, _, memory = json.loads(result.stdout)
    assert other == {
        "namespace": "other",
        "quota": "gpus",
        "key": "limits.nvidia.com/gpumem",
        "unit": "MiB",
        "used": 23034,
        "hard": 0,
        "percent": None,
        "pods": [],
        "claims": [{"name": "c1", "amount": 23034}],
    }
    assert memory["pods"] == [
        {"name": "train-0", "amount": 8000},
        {"name": "train-1", "amount": 4000},
    ]
    assert "QuotaNotHeld: resourcequotas/gpus: limits.nvidia.com/gpumem-percentage" in result.stderr


def test_a_whole_card_of_no_known_size_is_unknown(tmp_path: Path) -> None:
    result = show(tmp_path, "-n", "other", cards_of="")

    assert "unknown MiB" in result.stdout
    assert "claim c1 (unknown)" in result.stdout


def test_a_claim_of_an_unknown_form_is_told_and_stops_nothing(tmp_path: Path) -> None:
    strange = claim("team", "strange", "1Mi")
    strange["spec"]["devices"]["requests"] = {"of": "tomorrow"}

    result = show(tmp_path, "-n", "team", more=[strange])

    assert "13000 MiB" in result.stdout
    assert "claim team/strange is not counted: spec.devices.requests" in result.stderr


def test_who_sees_a_namespace_alone_sees_its_quotas(tmp_path: Path) -> None:
    """Kubernetes' own role for viewers has quotas and claims, and no slices."""
    result = show(tmp_path, "-n", "team", refused=f"GET {SLICES}")

    assert result.exit_code == 0
    assert "13000 MiB" in result.stdout
    assert "could not read the sizes of cards" in result.stderr
    assert "403 Fault" in result.stderr


def test_quotas_that_may_not_be_read_are_an_error(tmp_path: Path) -> None:
    result = show(tmp_path, "-n", "team", refused="GET /api/v1/namespaces/team/resourcequotas")

    assert result.exit_code == 1
    assert "cluster: 403 Fault" in result.stderr


def test_a_namespace_without_such_a_quota_says_so(tmp_path: Path) -> None:
    result = show(tmp_path, "-n", "empty")

    assert (result.exit_code, result.stdout) == (0, "")
    assert "no quota of namespace empty" in result.stderr


def test_a_namespace_or_all_must_be_named(tmp_path: Path) -> None:
    for arguments in ([], ["-A", "-n", "team"]):
        result = show(tmp_path, *arguments)
        assert result.exit_code == 2
        assert "--all-namespaces" in result.stderr


def test_an_unreachable_cluster_is_told(tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text("{}")

    result = CliRunner().invoke(app, ["quota", "-A", "--kubeconfig", str(config)])

    assert result.exit_code == 1
    assert "cluster: " in result.stderr
