"""In which order things are installed and removed: no pod is refused for longer than needed.

Forwards: what the webhook stands on, the webhook, then what makes the API server call it, then
what makes it refuse pods that were not converted, and the agents last: one node's trouble delays no
pod of another. Who shows what agents did comes after them. Backwards: agents go first, since those
that stay could not be told of any more, and refusing ends next.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hami_dra.install.manifests import is_needed_by_pods
from hami_dra.migration import Json

_WORKLOADS: Final = ("Deployment",)
_REGISTRATIONS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_GUARDS: Final = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
_AGENTS: Final = ("DaemonSet",)
_LATE: Final = (*_WORKLOADS, *_REGISTRATIONS, *_GUARDS, *_AGENTS)


@dataclass(frozen=True, slots=True)
class Stages:
    """The objects of an installation, each stage in the order in which it is applied.

    Attributes:
        base: what the workloads stand on, Namespaces first.
        workloads: what must be ready before anything below.
        registrations: by these the API server calls the workloads.
        guards: by these it refuses pods, and slices of foreign nodes.
        agents: these serve the cards of nodes, and after them those that show what they did.
    """

    base: tuple[Json, ...]
    workloads: tuple[Json, ...]
    registrations: tuple[Json, ...]
    guards: tuple[Json, ...]
    agents: tuple[Json, ...]

    def forwards(self) -> list[Json]:
        """Return everything in the order of installation."""
        return [each for stage in self.in_order() for each in stage]

    def in_order(self) -> tuple[tuple[Json, ...], ...]:
        """Return the stages in the order of installation."""
        return self.base, self.workloads, self.registrations, self.guards, self.agents

    def backwards(self) -> list[Json]:
        """Return everything in the order of removal: agents, then the bindings of the guards.

        The workloads go after the registrations, which would wait for them in vain.
        """
        return self.forwards()[::-1]


def stages(objects: Sequence[Json]) -> Stages:
    """Sort objects into stages."""
    base = [each for each in objects if each["kind"] not in _LATE]
    return Stages(
        base=tuple(sorted(base, key=lambda each: each["kind"] != "Namespace")),
        workloads=_of_kinds(objects, _WORKLOADS),
        registrations=_of_kinds(objects, _REGISTRATIONS),
        guards=_of_kinds(objects, _GUARDS),
        agents=tuple(
            sorted(_of_kinds(objects, _AGENTS), key=lambda each: not is_needed_by_pods(each))
        ),
    )


def _of_kinds(objects: Sequence[Json], kinds: Sequence[str]) -> tuple[Json, ...]:
    """Pick objects of some kinds, kind after kind."""
    return tuple(each for kind in kinds for each in objects if each["kind"] == kind)
