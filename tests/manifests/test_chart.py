"""The chart renders what kustomize renders, and a wrong value is an error."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import hami_dra
from hami_dra.cli.app import app
from hami_dra.install.manifests import AGENT, MONITOR
from hami_dra.migration import Json
from tests.manifests.test_manifests import OLD, Identity, by_identity, overlay
from tests.tools import helm, manifests
from tests.tools.manifests import ROOT

pytestmark = pytest.mark.tools

CHART = ROOT / "manifests" / "chart"
NAMESPACE = "hami-dra-system"


def template(*arguments: str, namespace: str = NAMESPACE) -> str:
    return helm.run("template", "any-name", str(CHART), "-n", namespace, *arguments).stdout


def rendered(*arguments: str, namespace: str = NAMESPACE) -> dict[Identity, Json]:
    return by_identity(manifests.objects(template(*arguments, namespace=namespace)))


def refused(*arguments: str) -> str:
    done = helm.run("template", "any-name", str(CHART), *arguments, check=False)
    assert done.returncode != 0
    return done.stderr


def values_of(policy: Path, folder: Path) -> Path:
    """Write the values of a policy with the command that people use."""
    done = CliRunner().invoke(app, ["install", "--policy", str(policy), "--helm-values"])
    assert done.exit_code == 0
    values = folder / "values-policy.yaml"
    values.write_text(done.stdout)
    return values


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("self-signed", {}),
        ("cert-manager", {"certificates.mode": "cert-manager"}),
        ("extended-resource", {"extendedResource": "nvidia.com/gpu"}),
        ("nvidia-runtime", {"nodeAgent.runtimeClassName": "nvidia"}),
    ],
)
def test_the_chart_renders_the_objects_of_the_overlay(name: str, values: dict[str, str]) -> None:
    sets = [f"--set={key}={value}" for key, value in values.items()]

    assert rendered("--set=createNamespace=true", *sets) == overlay(name)


def test_a_policy_renders_as_its_overlay(tmp_path: Path) -> None:
    values = values_of(OLD, tmp_path)

    found = rendered("--set=createNamespace=true", "--values", str(values))

    assert found == overlay("kube-1.34")


def test_a_policy_without_what_fits_it_is_refused(tmp_path: Path) -> None:
    values = values_of(OLD, tmp_path)

    said = refused("--values", str(values), "--set-file", f"policy={CHART / 'files/policy.yaml'}")

    assert "policy and admission do not fit each other" in said
    assert "hami-dra install --policy FILE --helm-values" in said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("replcas=3", "replcas"),
        ("image.repo=x", "repo"),
        ("certificates.mode=selfsigned", "certificates"),
        ("port=443", "port"),
        ("logLevel=loud", "logLevel"),
        ("networkPolicy.enabled=maybe", "enabled"),
        ("nodeAgent.settings.DEVICES=nvml", "DEVICES"),
        ("monitor.nodePort=-1", "nodePort"),
        ("monitor.settings.PORT=1", "PORT"),
    ],
)
def test_a_wrong_value_is_named(value: str, said: str) -> None:
    assert said in refused("--set", value)


def test_the_namespace_is_that_of_the_release() -> None:
    text = template("--set=createNamespace=true", namespace="gpu")

    assert NAMESPACE not in text.replace("pod-security.kubernetes.io", "")
    assert ("Deployment", "gpu", "hami-dra-webhook") in by_identity(manifests.objects(text))


def test_every_value_of_the_pods_arrives() -> None:
    values = {
        "image": {"repository": "example/hami-dra", "digest": f"sha256:{'0' * 64}"},
        "imagePullSecrets": [{"name": "pull"}],
        "replicas": 3,
        "logLevel": "debug",
        "port": 10250,
        "hostNetwork": True,
        "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
        "priorityClassName": "",
        "nodeSelector": {"role": "control"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "podLabels": {"team": "gpu"},
        "podAnnotations": {"note": "x"},
        "networkPolicy": {"enabled": False},
        "createNamespace": True,
    }

    found = rendered("--set-json", json.dumps(values))

    assert not [each for each in found if each[0] == "NetworkPolicy"]
    namespace = found[("Namespace", "", NAMESPACE)]["metadata"]["labels"]
    assert namespace["pod-security.kubernetes.io/enforce"] == "privileged"
    deployment = found[("Deployment", NAMESPACE, "hami-dra-webhook")]["spec"]
    metadata, pod = (deployment["template"][key] for key in ("metadata", "spec"))
    [container] = pod["containers"]
    assert deployment["replicas"] == 3
    assert metadata["labels"]["team"] == "gpu"
    assert metadata["annotations"]["note"] == "x"
    assert metadata["annotations"]["prometheus.io/port"] == "10250"
    assert "priorityClassName" not in pod
    assert pod["hostNetwork"] is True
    for name in ("imagePullSecrets", "tolerations", "affinity"):
        assert pod[name] == values[name]
    assert pod["nodeSelector"] == {"role": "control", "kubernetes.io/os": "linux"}
    assert container["image"] == f"example/hami-dra@sha256:{'0' * 64}"
    assert container["resources"]["limits"] == {"memory": "1Gi"}
    assert container["resources"]["requests"]["cpu"] == "1"
    assert {"--log-level=debug", "--port=10250"} <= set(container["args"])
    assert container["ports"][0]["containerPort"] == 10250


@pytest.mark.parametrize(
    ("host", "rolling"),
    [
        ("true", {"maxSurge": 0, "maxUnavailable": 1}),
        ("false", {"maxSurge": 1, "maxUnavailable": 0}),
    ],
)
def test_a_port_that_a_node_has_once_is_given_back_before_the_next_replica_takes_it(
    host: str, rolling: Json
) -> None:
    """With as many nodes as replicas, one more of them could never be placed."""
    found = rendered(f"--set=hostNetwork={host}")

    spec = found[("Deployment", NAMESPACE, "hami-dra-webhook")]["spec"]
    assert spec["strategy"]["rollingUpdate"] == rolling


def test_every_value_of_the_agent_arrives() -> None:
    agent = {
        "settings": {"HAMI_DRA_NODE_DEVICES": "simulated", "HAMI_DRA_NODE_COUNT": 2},
        "nodeSelector": {"gpu": "on"},
        "affinity": {"nodeAffinity": {}},
        "resources": {"limits": {"memory": "1Gi"}},
    }
    values = {"image": {"tag": "x"}, "imagePullSecrets": [{"name": "pull"}], "nodeAgent": agent}

    found = rendered("--set-json", json.dumps(values))

    settings = found[("ConfigMap", AGENT, AGENT)]["data"]
    assert settings == {"HAMI_DRA_NODE_DEVICES": "simulated", "HAMI_DRA_NODE_COUNT": "2"}
    shipped = overlay("self-signed")[("DaemonSet", AGENT, AGENT)]["spec"]["template"]
    template = found[("DaemonSet", AGENT, AGENT)]["spec"]["template"]
    assert set(template["metadata"]["annotations"]) - set(shipped["metadata"]["annotations"]) == {
        "hami-dra.io/settings-sha256"
    }, "other settings make another revision"
    pod = template["spec"]
    assert pod["nodeSelector"] == {"gpu": "on", "kubernetes.io/os": "linux"}
    assert pod["affinity"] == agent["affinity"]
    assert pod["imagePullSecrets"] == values["imagePullSecrets"]
    [container] = pod["containers"]
    assert container["resources"] == agent["resources"]
    assert container["image"] == "hami-dra:x"
    assert container["envFrom"] == [{"configMapRef": {"name": AGENT, "optional": True}}]


def test_the_ports_of_the_api_server_reach_all_who_call_it() -> None:
    found = rendered("--set-json", json.dumps({"networkPolicy": {"apiServerPorts": [16443]}}))

    for key in (
        ("NetworkPolicy", NAMESPACE, "hami-dra-webhook"),
        ("NetworkPolicy", AGENT, AGENT),
    ):
        [rule] = found[key]["spec"]["egress"]
        assert rule["ports"] == [{"port": 16443, "protocol": "TCP"}]
    assert "egress" not in found["NetworkPolicy", AGENT, MONITOR]["spec"]


def test_without_the_agent_nothing_of_it_is_rendered() -> None:
    text = template("--set=nodeAgent.enabled=false")

    assert AGENT not in text
    assert MONITOR not in text, "which would show nothing"


def test_every_value_of_the_monitor_arrives() -> None:
    monitor = {
        "nodePort": 30001,
        "legacyMetrics": True,
        "settings": {"HAMI_DRA_MONITOR_LOG_LEVEL": "debug"},
        "resources": {"limits": {"memory": "1Gi"}},
    }
    agent = {"nodeSelector": {"gpu": "on"}, "affinity": {"nodeAffinity": {}}}
    values = {
        "image": {"tag": "x"},
        "imagePullSecrets": [{"name": "pull"}],
        "nodeAgent": {**agent, "settings": {"HAMI_DRA_NODE_COUNT": 2}},
        "networkPolicy": {"enabled": False},
        "monitor": monitor,
    }

    found = rendered("--set-json", json.dumps(values))

    assert found["ConfigMap", AGENT, MONITOR]["data"] == {
        "HAMI_DRA_MONITOR_LEGACY_METRICS": "true",
        "HAMI_DRA_MONITOR_LOG_LEVEL": "debug",
    }
    [port] = found["Service", AGENT, MONITOR]["spec"]["ports"]
    assert port["nodePort"] == 30001
    template = found["DaemonSet", AGENT, MONITOR]["spec"]["template"]
    assert "hami-dra.io/settings-sha256" in template["metadata"]["annotations"]
    pod = template["spec"]
    assert pod["nodeSelector"] == {"gpu": "on", "kubernetes.io/os": "linux"}
    assert pod["affinity"] == agent["affinity"]
    assert pod["imagePullSecrets"] == values["imagePullSecrets"]
    [container] = pod["containers"]
    assert container["image"] == "hami-dra:x"
    assert container["resources"] == monitor["resources"]
    assert ("NetworkPolicy", AGENT, MONITOR) not in found


def test_a_monitor_without_a_port_of_the_nodes_is_reached_inside_of_the_cluster() -> None:
    spec = rendered("--set=monitor.nodePort=0")["Service", AGENT, MONITOR]["spec"]

    assert spec["type"] == "ClusterIP"
    assert "externalTrafficPolicy" not in spec
    assert "nodePort" not in spec["ports"][0]


def test_without_the_monitor_nothing_of_it_is_rendered() -> None:
    text = template("--set=monitor.enabled=false")

    assert MONITOR not in text
    assert AGENT in text


@pytest.mark.parametrize("mode", ["self-signed", "cert-manager"])
def test_two_renders_are_the_same_bytes(mode: str) -> None:
    sets = f"--set=certificates.mode={mode}"

    assert template(sets) == template(sets)


@pytest.mark.parametrize("mode", ["self-signed", "cert-manager"])
def test_the_linter_has_nothing_to_say(mode: str) -> None:
    done = helm.run("lint", "--strict", str(CHART), f"--set=certificates.mode={mode}")

    assert "0 chart(s) failed" in done.stdout


def test_the_notes_say_what_to_do_next() -> None:
    said = helm.run("install", "x", str(CHART), "-n", "gpu", "--dry-run=client").stdout

    assert "kubectl -n gpu rollout status deployment/hami-dra-webhook" in said
    assert "kubectl label namespace gpu pod-security.kubernetes.io/enforce=restricted" in said
    assert "pods that hold cards cannot end without the agent" in said


def test_the_versions_of_chart_and_package_are_one() -> None:
    [chart] = manifests.objects((CHART / "Chart.yaml").read_text())

    assert chart["version"] == chart["appVersion"] == hami_dra.__version__
