"""Write the manifests that are made from others: `make manifests`.

From the policies come registration, guard and digest; from the overlays, rendered by the real
kustomize, come the objects inside the package and those of the chart that no value changes.
"""

import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from ruamel.yaml import YAML

from hami_dra.cli.render import manifest
from hami_dra.install.admission import (
    PolicyText,
    admission,
    chart_text,
    guards,
    registrations,
)
from hami_dra.install.manifests import (
    AGENT,
    DIGEST_ANNOTATION,
    MONITOR,
    Certificates,
    identity,
)
from hami_dra.lab import toolchain
from hami_dra.migration import Json
from hami_dra.policies import load

ROOT: Final = Path(__file__).parents[2]

_NOTE: Final = "# Written by `make manifests`; change what it is made from.\n"
_TEMPLATED: Final = frozenset(
    {
        "ConfigMap",
        "Deployment",
        "DeviceClass",
        "Namespace",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Service",
    }
)
"""Kinds for which the chart has templates, because values change them."""


def write(root: Path) -> None:
    """Write every generated file of a checkout."""
    _write_admission(root / "manifests")
    _write_rendered(root)
    _write_chart(root / "manifests" / "chart" / "files", root)


def render(overlay: Path) -> str:
    """Render an overlay with the real kustomize."""
    kubectl = toolchain.find("kubectl")
    done = subprocess.run([kubectl, "kustomize", overlay], check=True, stdout=subprocess.PIPE)
    return done.stdout.decode()


def objects(text: str) -> list[Json]:
    """Read a stream of YAML documents; empty ones count for nothing."""
    return [each for each in YAML(typ="safe", pure=True).load_all(text) if each]


def read_policy(file: Path) -> PolicyText:
    """Read a policy file as text and as what it says."""
    return PolicyText(file.read_text(encoding="utf-8"), load(file))


def _write_admission(manifests: Path) -> None:
    component = manifests / "components" / "webhook"
    shipped = read_policy(component / "policy.yaml")
    _write(component / "registration.yaml", registrations(shipped.policy))
    _write(component / "guard.yaml", guards(shipped.policy))
    for file in (component / "policy.yaml", manifests / "overlays" / "kube-1.34" / "policy.yaml"):
        _write_digest(file.with_name("policy-digest.yaml"), read_policy(file))


def _write_digest(file: Path, policy: PolicyText) -> None:
    """Write the patch that makes another revision of the pods for another policy."""
    name = DIGEST_ANNOTATION.replace("/", "~1")
    path = f"/spec/template/metadata/annotations/{name}"
    file.write_text(f"{_NOTE}- op: add\n  path: {path}\n  value: {policy.digest}\n")


def _write_rendered(root: Path) -> None:
    for each in Certificates:
        text = render(root / "manifests" / "overlays" / each)
        (root / "hami_dra" / "install" / "rendered" / f"{each}.yaml").write_text(_NOTE + text)


def _write_chart(files: Path, root: Path) -> None:
    policy = read_policy(root / "manifests" / "components" / "webhook" / "policy.yaml")
    (files / "policy.yaml").write_text(policy.text)
    (files / "admission.yaml").write_text(chart_text(policy, manifest))
    overlays = root / "manifests" / "overlays"
    kept = {each: list(_untemplated(overlays / each, policy)) for each in Certificates}
    common = [
        item
        for item in kept[Certificates.SELF_SIGNED]
        if all(item in each for each in kept.values())
    ]
    shipped = objects(render(overlays / Certificates.SELF_SIGNED))
    for file, name in (("node-agent", AGENT), ("monitor", MONITOR)):
        _write(
            files / f"{file}.yaml", [each for each in shipped if each["metadata"]["name"] == name]
        )
    _write(files / "common.yaml", common)
    for mode, found in kept.items():
        _write(files / f"{mode}.yaml", [each for each in found if each not in common])


def _untemplated(overlay: Path, policy: PolicyText) -> Iterator[Json]:
    """Yield the objects of an overlay that no value changes, without agent and monitor."""
    made = [identity(each) for each in admission(policy.policy)]
    for each in objects(render(overlay)):
        is_theirs = each["metadata"]["name"] in {AGENT, MONITOR}
        is_fixed = each["kind"] not in _TEMPLATED and not is_theirs
        if is_fixed and identity(each) not in made:
            yield each


def _write(file: Path, found: Iterable[Json]) -> None:
    file.write_text(_NOTE + "---\n".join(manifest(each) for each in found))


if __name__ == "__main__":
    write(ROOT)
