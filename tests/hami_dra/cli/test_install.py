"""`hami-dra install` and `uninstall` without a cluster: what they print and what they refuse."""

import hashlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from typer.testing import CliRunner, Result

from hami_dra.cli.app import app
from hami_dra.install.manifests import AGENT, MONITOR, Choice, objects
from hami_dra.install.order import stages
from hami_dra.migration import Json

RENAMED = """\
# "ours": it's {{ not }} a template
apiVersion: hami-dra.io/v1alpha1
kind: Policy
families:
  - resources: {count: example.com/gpu}
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


def documents(text: str) -> list[Json]:
    return list(YAML(typ="safe", pure=True).load_all(text))


def test_a_dry_run_prints_what_would_be_applied_in_that_order() -> None:
    done = run("install", "--dry-run")

    assert done.exit_code == 0
    assert documents(done.stdout) == stages(objects(Choice())).forwards()


def test_choices_reach_the_manifests(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(RENAMED)

    done = run(
        *("install", "--dry-run", "--policy", str(policy), "--image", "x/hami-dra:1"),
        *("--replicas", "3", "--namespace", "gpu", "--certificates", "cert-manager"),
        "--extended-resource",
    )

    printed = documents(done.stdout)
    ours = {AGENT, MONITOR}
    found = {item["kind"]: item for item in printed if item["metadata"]["name"] not in ours}
    on_nodes = [item for item in printed if item["kind"] == "DaemonSet"]
    assert [each["metadata"]["name"] for each in on_nodes] == [AGENT, MONITOR]
    for each in on_nodes:
        assert each["spec"]["template"]["spec"]["containers"][0]["image"] == "x/hami-dra:1"
    assert found["ConfigMap"]["data"] == {"policy.yaml": RENAMED}
    assert found["DeviceClass"]["spec"]["extendedResourceName"] == "example.com/gpu"
    assert "example.com/gpu" in str(found["MutatingWebhookConfiguration"])
    assert found["MutatingWebhookConfiguration"]["metadata"]["annotations"] == {
        "cert-manager.io/inject-ca-from": "gpu/hami-dra-webhook"
    }
    spec = found["Deployment"]["spec"]
    assert spec["replicas"] == 3
    assert spec["template"]["spec"]["containers"][0]["image"] == "x/hami-dra:1"
    assert found["Deployment"]["metadata"]["namespace"] == "gpu"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"])),
    st.sampled_from(["\n", "\r\n"]),
)
def test_values_for_the_chart_keep_every_policy_as_it_was_written(
    tmp_path: Path, comment: str, line_end: str
) -> None:
    """The chart compares digests, so not a blank may get lost."""
    text = f"# {comment}\n{RENAMED}"
    policy = tmp_path / "policy.yaml"
    policy.write_bytes(text.replace("\n", line_end).encode())

    [values] = documents(run("install", "--policy", str(policy), "--helm-values").stdout)

    assert values["policy"] == text
    assert f"# policy-sha256: {hashlib.sha256(text.encode()).hexdigest()}\n" in values["admission"]


def test_a_wrong_policy_is_told_before_anything_happens(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(RENAMED.replace("families", "familys"))

    done = run("install", "--policy", str(policy))

    assert done.exit_code == 1
    assert "this policy cannot be used" in done.stderr
    assert f"{policy}:4" in done.stderr


@pytest.mark.parametrize("command", [["install"], ["uninstall", "--yes"]])
@pytest.mark.parametrize("name", ["", "Upper", "a/b", "a" * 64, "-a", "a b"])
def test_a_namespace_that_cannot_be_is_refused(command: list[str], name: str) -> None:
    done = run(*command, "--dry-run", "--namespace", name)

    assert done.exit_code == 2
    assert f"found {name!r}, expected a name such as hami-dra-system" in done.stderr


def test_an_unreachable_cluster_is_told(tmp_path: Path) -> None:
    done = run("install", "--kubeconfig", str(tmp_path / "none"))

    assert done.exit_code == 1
    assert "no kubeconfig at" in done.stderr


def test_nothing_is_deleted_without_a_person_who_agrees(tmp_path: Path) -> None:
    done = run("uninstall", "--kubeconfig", str(tmp_path / "none"))

    assert done.exit_code == 2
    assert "expected a terminal or --yes" in done.stderr
    monitors, agents, guards = done.stdout.splitlines()[1:4]
    assert monitors == "  daemonset.apps/hami-dra-monitor"
    assert agents == "  daemonset.apps/hami-dra-node"
    assert guards.startswith("  validatingadmissionpolicyb")


def test_a_dry_run_of_a_removal_lists_what_replicas_wrote_too() -> None:
    done = run("uninstall", "--dry-run", "--namespace", "gpu")

    assert done.exit_code == 0
    assert "  secret/hami-dra-webhook-ca\n" in done.stdout
    assert "  configmap/hami-dra-quota-NAMESPACE, of each with a quota\n" in done.stdout
    lines = done.stdout.splitlines()
    assert set(lines[-2:]) == {
        f"  namespace/{name}, if hami-dra made it" for name in ("gpu", AGENT)
    }


def test_the_agent_can_be_left_out_and_left_in() -> None:
    for arguments in (["install", "--no-node-agent"], ["uninstall", "--keep-node-agent"]):
        done = run(*arguments, "--dry-run")

        assert done.exit_code == 0
        assert AGENT not in done.stdout


def test_the_monitor_can_be_left_out() -> None:
    assert MONITOR in run("install", "--dry-run").stdout

    left_out = run("install", "--dry-run", "--no-monitor").stdout

    assert MONITOR not in left_out
    assert AGENT in left_out


def test_the_namespace_of_the_agent_is_not_the_webhooks() -> None:
    done = run("install", "--dry-run", "--namespace", AGENT)

    assert done.exit_code == 2
    assert "which is the node agent's" in done.stderr
