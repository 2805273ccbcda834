"""What an end-to-end test sees of its cluster, and how it writes legacy pods."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from subprocess import CompletedProcess

from hami_dra.kube.errors import ApiError
from hami_dra.lab.nodes import add_node
from hami_dra.lab.scene import Scene
from hami_dra.lab.shares import Share, read_shares
from hami_dra.lab.wait import PATIENCE_S, until
from hami_dra.migration import Cards, Json, Policy, migrate
from hami_dra.node.inventory import Card
from tests import versions
from tests.versions import Kubernetes

PATIENCE = f"--timeout={PATIENCE_S:g}s"
"""Have kubectl wait as long as we do ourselves."""


@dataclass
class World:
    """What one test sees of the cluster.

    Attributes:
        scene: the cluster with its webhook.
        namespace: the test's own.
        nodes: the test's own, by name.
    """

    scene: Scene
    namespace: str
    nodes: dict[str, tuple[Card, ...]] = field(default_factory=dict)

    @property
    def kubernetes(self) -> Kubernetes:
        """The cluster's version."""
        return versions.of(self.scene.cluster.version)

    def add_node(self, name: str, **profiles: int) -> tuple[Card, ...]:
        """Add a node, with cards such as `a100_80g=2`."""
        full = f"{self.namespace}-{name}"
        named = {profile.replace("_", "-"): count for profile, count in profiles.items()}
        self.nodes[full] = add_node(self.scene.api, full, named)
        return self.nodes[full]

    def kubectl(
        self, *arguments: str, stdin: str = "", check: bool = True
    ) -> CompletedProcess[str]:
        """Run kubectl in the test's namespace, as a user would."""
        return self.scene.cluster.kubectl(
            "--namespace", self.namespace, *arguments, stdin=stdin, check=check
        )

    def apply(self, *manifests: Json | str) -> None:
        """Apply manifests."""
        texts = [text if isinstance(text, str) else json.dumps(text) for text in manifests]
        self.kubectl("apply", "-f", "-", stdin="\n---\n".join(texts))

    def objects(self, resource: str) -> list[Json]:
        """Return the objects of the test's namespace."""
        return self.scene.api.list(resource, namespace=self.namespace)

    def await_nothing(self, resource: str) -> None:
        """Wait until the test's namespace holds nothing of a kind."""
        until(lambda: not self.objects(resource), what=f"no {resource} are left")

    def await_card_sizes(self, *memory_mib: int) -> None:
        """Wait until the webhook knows just these card sizes."""
        probe = pod("probe", {"gpumem-percentage": 50})
        seen = migrate(probe, Policy(), Cards(frozenset(memory_mib)))
        [expected] = [template.name for template in seen.templates]

        def known() -> bool:
            shown = self.scene.api.create(
                "pods", probe, namespace=self.namespace, query={"dryRun": "All"}
            )
            entries = shown["spec"]["resourceClaims"]
            return bool(entries[0]["resourceClaimTemplateName"] == expected)

        until(known, what=f"the webhook knows {memory_mib}", tolerate=(ApiError,))

    def await_limit_range(self, name: str) -> None:
        """Wait until the API server's own admission heeds a LimitRange with a default."""

        def heeded() -> bool:
            plain = pod("probe", {"cpu": 1})
            query = {"dryRun": "All"}
            shown = self.scene.api.create("pods", plain, namespace=self.namespace, query=query)
            return "kubernetes.io/limit-ranger" in shown["metadata"].get("annotations", {})

        until(heeded, what=f"the LimitRange {name} is heeded", tolerate=(ApiError,))

    def pod(self, name: str) -> Json:
        """Return a pod."""
        return self.scene.api.get("pods", name, namespace=self.namespace)

    def shares(self) -> list[Share]:
        """Return what the test's pods hold."""
        return read_shares(self.scene.api, self.namespace)

    def share(self, pod: str) -> Share:
        """Return the one share that a pod holds, once it is scheduled."""
        self.await_scheduled(pod)
        [share] = [share for share in self.shares() if share.pod == pod]
        return share

    def await_scheduled(self, *pods: str) -> None:
        """Wait until pods have a node."""
        for name in pods:
            until(partial(self._node, name), what=f"{name} is scheduled")

    def _node(self, pod: str) -> str | None:
        node: str | None = self.pod(pod)["spec"].get("nodeName")
        return node

    def await_all_scheduled(self, count: int) -> list[Json]:
        """Wait until so many pods have a node, and return them."""

        def bound() -> list[Json] | None:
            pods = [pod for pod in self.objects("pods") if pod["spec"].get("nodeName")]
            return pods if len(pods) == count else None

        return until(bound, what=f"{count} pods are scheduled")

    def await_refused(self, name: str) -> str:
        """Wait until the scheduler has found no place for a pod, and return why."""

        def reason() -> str | None:
            for condition in self.pod(name).get("status", {}).get("conditions", ()):
                if (condition["type"], condition.get("reason")) == (
                    "PodScheduled",
                    "Unschedulable",
                ):
                    return str(condition["message"])
            return None

        return until(reason, what=f"{name} is found unschedulable")

    def delete(self, *pods: str) -> None:
        """Delete pods and wait until they and their claims are gone."""
        for name in pods:
            self.scene.api.delete("pods", name, namespace=self.namespace)
        owners = set(pods)
        until(
            lambda: not any(owner_of(claim) in owners for claim in self.objects("resourceclaims")),
            what=f"the claims of {', '.join(pods)} are gone",
        )


def owner_of(claim: Json) -> str:
    """Return the name of the pod that owns a claim."""
    return str(claim["metadata"]["ownerReferences"][0]["name"])


def pod(
    name: str,
    limits: Mapping[str, object],
    *,
    requests: Mapping[str, object] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Json:
    """Write a pod of one container in legacy words; `gpumem` means `nvidia.com/gpumem`."""

    def named(amounts: Mapping[str, object]) -> Json:
        return {
            f"nvidia.com/{key}" if key.startswith("gpu") else key: v for key, v in amounts.items()
        }

    resources = {"limits": named(limits)}
    if requests is not None:
        resources["requests"] = named(requests)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "spec": {"containers": [{"name": "main", "image": "none", "resources": resources}]},
    }


def limit_range(**bounds: dict[str, str]) -> Json:
    """Write a LimitRange for containers."""
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "bounds"},
        "spec": {"limits": [{"type": "Container", **bounds}]},
    }


def managed_amounts(seen: Json) -> list[dict[str, str]]:
    """Return what each container still carries of the managed resources."""
    [family] = Policy().families
    managed = family.managed_names
    return [
        {
            name: amount
            for section in ("limits", "requests")
            for name, amount in container["resources"].get(section, {}).items()
            if name in managed
        }
        for container in seen["spec"]["containers"]
    ]
