"""The objects of an installation: those that ship, changed by what was chosen."""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Any, Final

from ruamel.yaml import YAML

from hami_dra.install.admission import PolicyText, admission
from hami_dra.migration import Json
from hami_dra.migration.names import DRIVER
from hami_dra.migration.policy import Policy
from hami_dra.migration.registration import NAME, SYSTEM_NAMESPACE
from hami_dra.policies import parse

POLICY_MAP: Final = "hami-dra-policy"
"""Name of the ConfigMap with the policy."""

POLICY_KEY: Final = "policy.yaml"
"""Its key with the policy file."""

DIGEST_ANNOTATION: Final = "hami-dra.io/policy-sha256"
"""Annotation of the webhook's pods: another policy makes another revision of them."""

AGENT: Final = "hami-dra-node"
"""Name of every object of the node agent, its namespace included."""

MONITOR: Final = "hami-dra-monitor"
"""Name of every object of the monitor, which lives in the agent's namespace."""

_WORKLOADS: Final = ("Deployment", "DaemonSet")


class Certificates(StrEnum):
    """Who issues the webhook's certificate and writes the caBundle."""

    SELF_SIGNED = "self-signed"
    CERT_MANAGER = "cert-manager"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What can be chosen; nothing but the defaults is what `manifests/overlays` hold.

    Attributes:
        certificates: who issues the certificate.
        namespace: of the webhook and all that belongs to it; the node agent has one of its own.
        policy: instead of the default one.
        image: instead of the released one.
        replicas: instead of two.
        extended_resource: whether the DeviceClass stands for the legacy resource too (ruling 29).
        node_agent: whether cards come from our own agent on every node.
        monitor: whether a monitor shows what the agent of each node gave away.
        runtime_class: of agents and monitors; where NVIDIA's runtime is not the default one.
    """

    certificates: Certificates = Certificates.SELF_SIGNED
    namespace: str = SYSTEM_NAMESPACE
    policy: PolicyText | None = None
    image: str | None = None
    replicas: int | None = None
    extended_resource: bool = False
    node_agent: bool = True
    monitor: bool = True
    runtime_class: str | None = None


def objects(choice: Choice) -> list[Json]:
    """Return the objects of an installation, as a server may store them, in no certain order."""
    found = _with_agent(shipped(choice.certificates), choice)
    if choice.policy is not None:
        found = [_with_policy(each, choice.policy) for each in found]
    if choice.extended_resource:
        resource = _extended_resource(choice.policy.policy if choice.policy else Policy())
        _change(found, "DeviceClass", lambda item: _set_resource(item, resource))
    if (image := choice.image) is not None:
        for kind in _WORKLOADS:
            _change(found, kind, lambda item: _set_image(item, image))
    if choice.replicas is not None:
        _change(found, "Deployment", lambda item: item["spec"].update(replicas=choice.replicas))
    return [_moved(each, choice.namespace) for each in found]


def shipped(certificates: Certificates) -> list[Json]:
    """Return the objects as they ship."""
    return deepcopy(_parsed(f"{certificates}.yaml"))


@cache
def _parsed(name: str) -> list[Json]:
    text = resources.files(__package__).joinpath("rendered", name).read_text(encoding="utf-8")
    return list(YAML(typ="safe", pure=True).load_all(text))


def shipped_policy() -> PolicyText:
    """Return the policy that ships."""
    [found] = [
        each["data"][POLICY_KEY]
        for each in shipped(Certificates.SELF_SIGNED)
        if identity(each) == ("ConfigMap", POLICY_MAP)
    ]
    return PolicyText(found, parse(found, POLICY_KEY))


def everything(namespace: str, *, node_agent: bool = True) -> list[Json]:
    """Return every object that some choice installs, once; with those of the agent or without."""
    found = {
        (title(each), each["metadata"].get("namespace")): each
        for mode in Certificates
        for each in objects(Choice(certificates=mode, namespace=namespace))
        if node_agent or each["metadata"]["name"] != AGENT
    }
    return list(found.values())


def is_needed_by_pods(item: Json) -> bool:
    """Tell whether pods that hold cards could not end without an object: the agents."""
    return identity(item) == ("DaemonSet", AGENT)


def other_choices(found: Sequence[Json], namespace: str) -> list[Json]:
    """Return what other choices would install beside what was chosen."""
    chosen = {title(each) for each in found}
    return [each for each in everything(namespace) if title(each) not in chosen]


def secrets(namespace: str) -> list[Json]:
    """Return what comes into being later: the Secrets with keys, as kind, namespace and name."""
    names = (f"{NAME}-ca", f"{NAME}-authority", f"{NAME}-tls")
    return [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}}
        for name in names
    ]


def _with_agent(found: list[Json], choice: Choice) -> list[Json]:
    """Return objects with agent and monitor as chosen, or without; none shows what is not ours."""
    left_out = () if choice.node_agent else (AGENT, MONITOR)
    left_out = left_out if choice.monitor else (*left_out, MONITOR)
    found = [each for each in found if each["metadata"]["name"] not in left_out]
    if (name := choice.runtime_class) is not None:
        _change(found, "DaemonSet", lambda item: _set_runtime_class(item, name))
    return found


def _with_policy(item: Json, policy: PolicyText) -> Json:
    """Return an object as it is for another policy."""
    made = {identity(each): each for each in admission(policy.policy)}
    if (fitting := made.get(identity(item))) is not None:
        return {**fitting, "metadata": item["metadata"]}
    if identity(item) == ("ConfigMap", POLICY_MAP):
        return {**item, "data": {POLICY_KEY: policy.text}}
    if identity(item) == ("Deployment", NAME):
        item["spec"]["template"]["metadata"]["annotations"][DIGEST_ANNOTATION] = policy.digest
    return item


def identity(item: Json) -> tuple[str, str]:
    """Return the kind and the name of an object."""
    return item["kind"], item["metadata"]["name"]


def title(item: Json) -> str:
    """Name an object as kubectl does."""
    group = item["apiVersion"].rpartition("/")[0]
    kind = item["kind"].lower()
    return f"{kind}{'.' if group else ''}{group}/{item['metadata']['name']}"


def _change(found: list[Json], kind: str, edit: Callable[[Json], None]) -> None:
    for item in found:
        if item["kind"] == kind:
            edit(item)


def _set_image(workload: Json, image: str) -> None:
    for container in _containers(workload):
        container["image"] = image


def _set_runtime_class(workload: Json, name: str) -> None:
    workload["spec"]["template"]["spec"]["runtimeClassName"] = name


def _containers(workload: Json) -> Iterator[Json]:
    pod = workload["spec"]["template"]["spec"]
    yield from (*pod.get("initContainers", ()), *pod["containers"])


def _set_resource(device_class: Json, resource: str) -> None:
    device_class["spec"]["extendedResourceName"] = resource


def _extended_resource(policy: Policy) -> str:
    """Return the resource that counts cards of the class that we ship."""
    names = [each.resources.count for each in policy.families if each.device_class == DRIVER]
    return names[0] if names else Policy().families[0].resources.count


def _moved(value: Any, namespace: str) -> Any:  # noqa: ANN401 - any JSON
    """Return a value with another namespace wherever ours is named, inside arguments too."""
    if isinstance(value, dict):
        if value.get("kind") == "ConfigMap":  # what a person wrote stays as it was written
            return {**value, "metadata": _moved(value["metadata"], namespace)}
        return {key: _moved(member, namespace) for key, member in value.items()}
    if isinstance(value, list):
        return [_moved(member, namespace) for member in value]
    return value.replace(SYSTEM_NAMESPACE, namespace) if isinstance(value, str) else value
