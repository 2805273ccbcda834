"""Which kinds carry pods, where, and whether they can carry claims: a table (decision 0022).

A kind is converted where its schema has `resourceClaims` beside the containers and its operator
does not read the resources that a conversion removes. `source` names the release that was read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hami_dra.migration import Json

_BY_WEBHOOK: Final = "leave it as it is: the webhook converts its pods when they are created"
_RAY: Final = (
    "KubeRay reads the number of GPUs that Ray may use from the container's limits; " + _BY_WEBHOOK
)
_WORKFLOW: Final = (
    "its containers cannot name the pod's claims: a template has no field resourceClaims; "
    + _BY_WEBHOOK
)
_RAY_SOURCE: Final = "ray-operator v1.5.0"
_TRAINING: Final = "kubeflow training-operator v1.8.1"
_WORKFLOW_SOURCE: Final = "argo-workflows v4.0.5"

ANY: Final = "*"
"""A step that stands for every member of a list or an object."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object whose text can name GPU sharing resources.

    Attributes:
        kind: as objects name it.
        group: of its API; empty for the core and for objects that name none.
        version: of its API, where versions differ; empty for all.
        pods: paths of its pods or pod templates, by dots, `*` for every member; empty for the
            object itself.
        reason: why it is not converted; empty for a kind that is.
        note: what to tell of a kind that has no pods and need not change.
        source: the release whose schema was read.
    """

    kind: str
    group: str = ""
    version: str = ""
    pods: tuple[str, ...] = ()
    reason: str = ""
    note: str = ""
    source: str = "kubernetes v1.37.2"

    @property
    def is_built_in(self) -> bool:
        """Tell whether Kubernetes has it without more."""
        return self.group in _BUILT_IN

    @property
    def paths(self) -> tuple[tuple[str, ...], ...]:
        """Return the paths of its pods by steps."""
        return tuple(tuple(path.split(".")) if path else () for path in self.pods)


_TEMPLATE: Final = ("spec.template",)

KINDS: Final = (
    Kind("Pod", pods=("",)),
    Kind("PodTemplate", pods=("template",)),
    Kind("ReplicationController", pods=_TEMPLATE),
    Kind("Deployment", "apps", pods=_TEMPLATE),
    Kind("StatefulSet", "apps", pods=_TEMPLATE),
    Kind("DaemonSet", "apps", pods=_TEMPLATE),
    Kind("ReplicaSet", "apps", pods=_TEMPLATE),
    Kind("Job", "batch", pods=_TEMPLATE),
    Kind("CronJob", "batch", pods=("spec.jobTemplate.spec.template",)),
    Kind(
        "Job",
        "batch.volcano.sh",
        pods=("spec.tasks.*.template",),
        source="volcano v1.10.0",
    ),
    Kind(
        "JobSet",
        "jobset.x-k8s.io",
        pods=("spec.replicatedJobs.*.template.spec.template",),
        source="jobset v0.8.0",
    ),
    Kind(
        "LeaderWorkerSet",
        "leaderworkerset.x-k8s.io",
        pods=(
            "spec.leaderWorkerTemplate.leaderTemplate",
            "spec.leaderWorkerTemplate.workerTemplate",
        ),
        source="lws v0.6.0",
    ),
    Kind("Rollout", "argoproj.io", pods=_TEMPLATE, source="argo-rollouts v1.10.2"),
    Kind(
        "PyTorchJob",
        "kubeflow.org",
        pods=("spec.pytorchReplicaSpecs.*.template",),
        source=_TRAINING,
    ),
    Kind("TFJob", "kubeflow.org", pods=("spec.tfReplicaSpecs.*.template",), source=_TRAINING),
    Kind(
        "MPIJob",
        "kubeflow.org",
        "v2beta1",
        pods=("spec.mpiReplicaSpecs.*.template",),
        source="mpi-operator v0.6.0",
    ),
    Kind(
        "MPIJob",
        "kubeflow.org",
        "v1",
        reason="the operator reads the launcher's limits to tell whether it trains too; "
        + _BY_WEBHOOK,
        source=_TRAINING,
    ),
    Kind("RayCluster", "ray.io", reason=_RAY, source=_RAY_SOURCE),
    Kind("RayJob", "ray.io", reason=_RAY, source=_RAY_SOURCE),
    Kind("RayService", "ray.io", reason=_RAY, source=_RAY_SOURCE),
    Kind("Workflow", "argoproj.io", reason=_WORKFLOW, source=_WORKFLOW_SOURCE),
    Kind("WorkflowTemplate", "argoproj.io", reason=_WORKFLOW, source=_WORKFLOW_SOURCE),
    Kind("ClusterWorkflowTemplate", "argoproj.io", reason=_WORKFLOW, source=_WORKFLOW_SOURCE),
    Kind("CronWorkflow", "argoproj.io", reason=_WORKFLOW, source=_WORKFLOW_SOURCE),
    Kind(
        "InferenceService",
        "serving.kserve.io",
        reason="a model's container is made from its ServingRuntime, which cannot carry claims, and"
        " Knative refuses them; " + _BY_WEBHOOK,
        source="kserve v0.15.0",
    ),
    Kind(
        "ServingRuntime",
        "serving.kserve.io",
        reason="its schema has no resourceClaims; " + _BY_WEBHOOK,
        source="kserve v0.15.0",
    ),
    Kind(
        "ClusterServingRuntime",
        "serving.kserve.io",
        reason="its schema has no resourceClaims; " + _BY_WEBHOOK,
        source="kserve v0.15.0",
    ),
    Kind(
        "Service",
        "serving.knative.dev",
        reason="Knative refuses resourceClaims in its pods; " + _BY_WEBHOOK,
        source="knative serving v0.51.0",
    ),
    Kind(
        "Configuration",
        "serving.knative.dev",
        reason="Knative refuses resourceClaims in its pods; " + _BY_WEBHOOK,
        source="knative serving v0.51.0",
    ),
    Kind(
        "LimitRange",
        note="bounds resources that converted pods no longer carry; a maximum is honoured by"
        " writing zero, a default is removed again",
    ),
    Kind(
        "ResourceQuota",
        note="counts resources that converted pods no longer carry; see hami-dra quota --help",
    ),
    Kind("Node", note="says what a node had; nothing in it is converted"),
)
"""All kinds that are known; any other one that names managed resources is reported."""

_BUILT_IN: Final = frozenset(("", "apps", "batch", "extensions"))
_BY_NAME: Final[Mapping[str, tuple[Kind, ...]]] = {
    name: tuple(kind for kind in KINDS if kind.kind == name) for name in {k.kind for k in KINDS}
}


def kind_of(document: Json) -> Kind | None:
    """Return what is known of an object's kind; None for nothing."""
    group, version = _group_version(document.get("apiVersion"))
    for kind in _BY_NAME.get(str(document.get("kind", "")), ()):
        fits = kind.group == group or (group in {"", "extensions"} and kind.group in _BUILT_IN)
        if fits and kind.version in {"", version}:
            return kind
    return None


def _group_version(written: Any) -> tuple[str, str]:  # noqa: ANN401 - any JSON
    group, _, version = str(written or "").rpartition("/")
    return group, version
