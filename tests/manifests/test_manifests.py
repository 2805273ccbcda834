"""The manifests are current, and everybody who writes them writes the same."""

import os
import re
import shutil
from pathlib import Path

import httpx
import pytest

from hami_dra.install.admission import PolicyText
from hami_dra.install.manifests import (
    AGENT,
    MONITOR,
    Certificates,
    Choice,
    identity,
    objects,
)
from hami_dra.kube.templates import MemoryTemplates
from hami_dra.migration import Json, Policy
from hami_dra.monitor.settings import read as read_monitor_settings
from hami_dra.node.settings import read as read_agent_settings
from tests.tools import manifests
from tests.tools.manifests import ROOT
from webhook.app import Dependencies, create_app
from webhook.server import DRAIN_S
from webhook.settings import Settings

OVERLAYS = ROOT / "manifests" / "overlays"
OLD = OVERLAYS / "kube-1.34" / "policy.yaml"

_PROBES = ("startup", "liveness", "readiness")

Identity = tuple[str, str, str]


def by_identity(found: list[Json]) -> dict[Identity, Json]:
    named = {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]): item
        for item in found
    }
    assert len(named) == len(found)
    return named


def overlay(name: str) -> dict[Identity, Json]:
    """Return what the real kustomize makes of an overlay."""
    return by_identity(manifests.objects(manifests.render(OVERLAYS / name)))


def tree(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): file.read_text()
        for file in folder.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


def test_what_is_made_from_others_is_current(tmp_path: Path) -> None:
    """`make manifests` changes nothing; otherwise run it and read what it changed."""
    parts = ("manifests", "hami_dra/install/rendered")
    for part in parts:
        shutil.copytree(ROOT / part, tmp_path / part)

    manifests.write(tmp_path)

    for part in parts:
        assert tree(tmp_path / part) == tree(ROOT / part)


def test_the_policy_that_ships_is_the_default_one() -> None:
    shipped = manifests.read_policy(ROOT / "manifests" / "components" / "webhook" / "policy.yaml")

    assert shipped.policy == Policy()


@pytest.mark.parametrize(
    ("name", "choice"),
    [
        ("self-signed", Choice()),
        ("cert-manager", Choice(certificates=Certificates.CERT_MANAGER)),
        ("extended-resource", Choice(extended_resource=True)),
        ("nvidia-runtime", Choice(runtime_class="nvidia")),
        ("kube-1.34", Choice(policy=manifests.read_policy(OLD))),
    ],
)
def test_the_command_installs_what_the_overlay_holds(name: str, choice: Choice) -> None:
    assert by_identity(objects(choice)) == overlay(name)


def test_another_policy_reaches_everything_that_must_fit_it() -> None:
    text = "apiVersion: hami-dra.io/v1alpha1\nkind: Policy\nfamilies: [hygon-dcu]\n"
    policy = Policy.model_validate({"families": ["hygon-dcu"]})

    found = by_identity(objects(Choice(policy=PolicyText(text, policy), replicas=3, image="x:y")))

    by_kind = {
        kind: item for (kind, _, name), item in found.items() if name not in {AGENT, MONITOR}
    }
    [hook] = by_kind["MutatingWebhookConfiguration"]["webhooks"]
    [validation] = by_kind["ValidatingAdmissionPolicy"]["spec"]["validations"]
    for expression in (hook["matchConditions"][0]["expression"], validation["expression"]):
        assert "hygon.com/dcunum" in expression
        assert "nvidia.com/gpu" not in expression
    assert by_kind["ConfigMap"]["data"] == {"policy.yaml": text}
    before = by_identity(objects(Choice()))[("Deployment", "hami-dra-system", "hami-dra-webhook")]
    deployment = by_kind["Deployment"]["spec"]
    assert deployment["replicas"] == 3
    assert deployment["template"]["spec"]["containers"][0]["image"] == "x:y"
    key = "hami-dra.io/policy-sha256"
    revision = deployment["template"]["metadata"]["annotations"][key]
    assert revision != before["spec"]["template"]["metadata"]["annotations"][key]


def test_the_extended_resource_is_the_one_that_counts_cards() -> None:
    renamed = {"families": [{"resources": {"count": "example.com/gpu"}}]}
    policy = PolicyText("", Policy.model_validate(renamed))

    found = objects(Choice(policy=policy, extended_resource=True))

    [device_class] = [item for item in found if item["kind"] == "DeviceClass"]
    assert device_class["spec"]["extendedResourceName"] == "example.com/gpu"


@pytest.mark.parametrize("certificates", Certificates)
def test_another_namespace_is_meant_everywhere(certificates: Certificates) -> None:
    policy = PolicyText("# hami-dra-system\n", Policy())

    found = objects(Choice(certificates=certificates, namespace="gpu", policy=policy))

    [written] = [item for item in found if item["kind"] == "ConfigMap"]
    assert written["data"] == {"policy.yaml": "# hami-dra-system\n"}
    others = [item for item in found if item is not written]
    assert "hami-dra-system" not in str(others)
    mine = [item for item in found if item["metadata"]["name"] not in {AGENT, MONITOR}]
    assert {item["metadata"].get("namespace", "gpu") for item in mine} == {"gpu"}


def webhook_pod(certificates: Certificates) -> Json:
    pod: Json = template_of("Deployment", Choice(certificates=certificates))["spec"]
    return pod


def template_of(kind: str, choice: Choice, name: str | None = None) -> Json:
    """Return the pods of a workload: of this name, or the only one of its kind."""
    of_kind = [item for item in objects(choice) if item["kind"] == kind]
    [workload] = [item for item in of_kind if name in {None, item["metadata"]["name"]}]
    template: Json = workload["spec"]["template"]
    return template


@pytest.mark.parametrize("certificates", Certificates)
def test_the_webhook_understands_its_arguments(certificates: Certificates) -> None:
    [container] = webhook_pod(certificates)["containers"]
    pairs = (argument.removeprefix("--").split("=") for argument in container["args"])
    arguments = {name.replace("-", "_"): value for name, value in pairs}

    settings = Settings(**arguments)

    assert settings.port == container["ports"][0]["containerPort"]
    mounts = {Path(each["mountPath"]) for each in container["volumeMounts"]}
    files = (settings.policy, settings.tls_cert, settings.tls_key)
    assert {file.parent for file in files if file} == mounts


def test_the_agent_understands_its_arguments_and_has_its_directories() -> None:
    template = template_of("DaemonSet", Choice(), AGENT)
    [container] = template["spec"]["containers"]
    pairs = (argument.removeprefix("--").split("=") for argument in container["args"])
    arguments = {name.replace("-", "_"): value for name, value in pairs}

    settings = read_agent_settings({}, {"name": "node", **arguments})

    assert settings.port == container["ports"][0]["containerPort"]
    assert template["metadata"]["annotations"]["prometheus.io/port"] == str(settings.port)
    mounts = {each["name"]: Path(each["mountPath"]) for each in container["volumeMounts"]}
    assert set(mounts.values()) == {
        *(settings.registry, settings.plugin_directory.parent),
        *(settings.cdi_directory, settings.run_directory),
    }
    outside = {each["name"]: Path(each["hostPath"]["path"]) for each in template["spec"]["volumes"]}
    assert outside == mounts, "kubelet and runtime are told these paths"


def test_agents_are_replaced_by_tenths_of_the_nodes_and_none_goes_before_its_successor() -> None:
    [agents] = [
        item
        for item in objects(Choice())
        if item["kind"] == "DaemonSet" and item["metadata"]["name"] == AGENT
    ]

    assert agents["spec"]["updateStrategy"]["rollingUpdate"] == {
        "maxSurge": "10%",
        "maxUnavailable": 0,
    }


def test_the_agent_has_the_rights_of_its_manifest_and_no_others() -> None:
    """NVML names processes by the node's ids, and whose they are is not for everybody to see."""
    pod = template_of("DaemonSet", Choice(), AGENT)["spec"]
    [container] = pod["containers"]

    assert pod["hostPID"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_PTRACE"]}
    assert "privileged" not in container["securityContext"]
    assert "runtimeClassName" not in pod
    library = {each["name"] for each in container["env"]} & {"HAMI_DRA_NODE_LIBRARY"}
    assert library == set(), (
        "a variable of the pod would win over the ConfigMap; the image names it"
    )


def test_the_monitor_understands_its_arguments_and_only_reads() -> None:
    template = template_of("DaemonSet", Choice(), MONITOR)
    [container] = template["spec"]["containers"]
    pairs = (argument.removeprefix("--").split("=") for argument in container["args"])
    arguments = {name.replace("-", "_"): value for name, value in pairs}

    settings = read_monitor_settings({}, {"name": "node", **arguments})

    assert settings.port == container["ports"][0]["containerPort"]
    assert template["metadata"]["annotations"]["prometheus.io/port"] == str(settings.port)
    outside = {each["name"]: each["hostPath"]["path"] for each in template["spec"]["volumes"]}
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert outside == mounts
    assert set(map(Path, mounts.values())) == {
        settings.pod_resources.parent,
        settings.run_directory,
    }
    assert all(each["readOnly"] for each in container["volumeMounts"])


def test_the_monitor_has_no_right_no_token_and_no_capability() -> None:
    """Its account is bound by nothing, and what is in its pod could do nothing with it."""
    found = objects(Choice())
    pod = template_of("DaemonSet", Choice(), MONITOR)["spec"]
    [container] = pod["containers"]
    account = ("ServiceAccount", "hami-dra-node", MONITOR)

    assert pod["serviceAccountName"] == MONITOR
    assert by_identity(found)[account]["automountServiceAccountToken"] is False
    bindings = [item for item in found if item["kind"].endswith("RoleBinding")]
    assert MONITOR not in {each["name"] for item in bindings for each in item["subjects"]}
    assert pod["automountServiceAccountToken"] is False
    assert not {"hostPID", "hostNetwork", "hostIPC"} & pod.keys()
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["readOnlyRootFilesystem"] is True
    assert "privileged" not in security


@pytest.mark.parametrize(
    ("name", "kind", "outwards"),
    [
        ("hami-dra-webhook", "Deployment", {443, 6443}),
        (AGENT, "DaemonSet", {443, 6443}),
        (MONITOR, "DaemonSet", set()),
    ],
)
def test_every_pod_is_reached_at_one_port_and_reaches_the_api_server_alone(
    name: str, kind: str, outwards: set[int]
) -> None:
    """Also where a cluster lets nothing through that no policy allows."""
    found = objects(Choice())
    [workload] = [each for each in found if identity(each) == (kind, name)]
    template = workload["spec"]["template"]

    [policy] = [each for each in found if identity(each) == ("NetworkPolicy", name)]

    assert policy["metadata"]["namespace"] == workload["metadata"]["namespace"]
    spec = policy["spec"]
    selected = spec["podSelector"]["matchLabels"]
    assert selected == workload["spec"]["selector"]["matchLabels"]
    assert selected.items() <= template["metadata"]["labels"].items()
    assert set(spec["policyTypes"]) == {"Ingress", "Egress"}
    [port] = [each for one in template["spec"]["containers"] for each in one["ports"]]
    [ingress] = spec["ingress"]
    assert [each["port"] for each in ingress["ports"]] == [port["name"]]
    reached = {each["port"] for rule in spec.get("egress", ()) for each in rule["ports"]}
    assert reached == outwards


def test_each_node_shows_itself_at_one_port() -> None:
    found = by_identity(objects(Choice()))

    spec = found["Service", "hami-dra-node", MONITOR]["spec"]

    assert (spec["type"], spec["externalTrafficPolicy"]) == ("NodePort", "Local")
    assert [port["nodePort"] for port in spec["ports"]] == [31995]
    template = template_of("DaemonSet", Choice(), MONITOR)
    assert spec["selector"].items() <= template["metadata"]["labels"].items()


def test_the_patch_of_the_page_gives_the_agent_nvml(tmp_path: Path) -> None:
    """What NODE says for nodes without NVIDIA's runtime."""
    [patch] = re.findall(r"```yaml\n(patches:.*?)```", page_of("NODE"), re.DOTALL)
    shipped = os.path.relpath(OVERLAYS / "self-signed", tmp_path.resolve())
    (tmp_path / "kustomization.yaml").write_text(f"resources: [{shipped}]\n{patch}")

    patched = by_identity(manifests.objects(manifests.render(tmp_path)))

    key = ("DaemonSet", AGENT, AGENT)
    before, after = (
        each[key]["spec"]["template"]["spec"] for each in (overlay("self-signed"), patched)
    )
    [container] = after["containers"]
    assert container["securityContext"]["privileged"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is True, "or it is refused"
    assert len(container["volumeMounts"]) == len(before["containers"][0]["volumeMounts"]) + 1
    assert container["env"] == before["containers"][0]["env"]


def page_of(name: str) -> str:
    return (ROOT / ".github" / f"{name}.md").read_text()


def test_a_pod_has_the_time_to_leave_and_to_drain() -> None:
    pod = webhook_pod(Certificates.SELF_SIGNED)
    leaving = Settings.model_fields["termination_delay_s"].default

    assert pod["terminationGracePeriodSeconds"] >= leaving + DRAIN_S + 5


async def test_probes_scrapes_and_calls_ask_for_pages_that_exist() -> None:
    found = objects(Choice())
    [deployment] = [item for item in found if item["kind"] == "Deployment"]
    template = deployment["spec"]["template"]
    [container] = template["spec"]["containers"]
    hooks = [hook for item in found for hook in item.get("webhooks", ())]
    pages = {
        *(container[f"{kind}Probe"]["httpGet"]["path"] for kind in _PROBES),
        template["metadata"]["annotations"]["prometheus.io/path"],
    }
    called = {hook["clientConfig"]["service"]["path"] for hook in hooks}
    transport = httpx.ASGITransport(create_app(Dependencies(templates=MemoryTemplates())))

    async with httpx.AsyncClient(transport=transport, base_url="https://webhook") as client:
        answers = {page: (await client.get(page)).status_code for page in pages | called}

    assert answers == {**dict.fromkeys(pages, 200), **dict.fromkeys(called, 405)}


@pytest.mark.parametrize("certificates", Certificates)
def test_nobody_but_its_keeper_writes_the_bundle(certificates: Certificates) -> None:
    """An applied caBundle, even an empty one, would undo what the keeper wrote."""
    assert "caBundle" not in str(objects(Choice(certificates=certificates)))


def test_cert_manager_needs_no_right_on_secrets_and_registrations() -> None:
    rules = [
        rule
        for item in objects(Choice(certificates=Certificates.CERT_MANAGER))
        if item["kind"] in {"Role", "ClusterRole"}
        for rule in item["rules"]
    ]

    assert rules
    assert not [rule for rule in rules if "secrets" in rule["resources"]]
    assert not [rule for rule in rules if "admissionregistration.k8s.io" in rule["apiGroups"]]


def test_the_page_tells_what_every_right_is_for() -> None:
    pages = {name: page_of(name) for name in ("INSTALL", "NODE")}
    rules = [
        (pages["NODE" if item["metadata"]["name"] == AGENT else "INSTALL"], rule)
        for item in objects(Choice())
        if item["kind"] in {"Role", "ClusterRole"}
        for rule in item["rules"]
    ]

    for page, rule in rules:
        for resource in rule["resources"]:
            [line] = [line for line in page.splitlines() if line.startswith(f"| `{resource}` |")]
            for verb in rule["verbs"]:
                assert f"`{verb}`" in line, (resource, verb)
