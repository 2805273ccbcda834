"""A namespace of a real cluster where situations are set up: nodes with cards, pods with claims.

Pods come here as `migrate` leaves them, with the templates it wants, and not by way of the webhook:
other tests prove that the webhook sends the same patch, and thousands of pods are faster so.
"""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from hami_dra.kube.errors import ConflictError, NotFoundError
from hami_dra.kube.session import Session
from hami_dra.migration import Family, Json, Template
from hami_dra.node.devices import WHOLE
from tests.e2e.ledger import Claim, Ledger
from tests.e2e.situations import Share, Situation, published

_DRIVER: Final = Family().driver

_NODES: Final = "/api/v1/nodes"
_RESOURCES: Final = "/apis/resource.k8s.io/v1"
_SLICES: Final = f"{_RESOURCES}/resourceslices"
_HOST: Final = "kubernetes.io/hostname"
_NOW: Final = {"gracePeriodSeconds": 0}
_ROOM: Final = {"cpu": "64", "memory": "512Gi", "pods": "110"}
_PROBE: Final = Situation(
    {
        "id": "probe",
        "cards": [{"uuid": "GPU-probe", "type": "NVIDIA", "mem": 1, "cores": 100, "slots": 1}],
        "steps": [],
    }
)


class Stage:
    """One namespace and the nodes of its situations.

    No kubelet attends to these nodes: a bound pod stays as it is and is deleted at once.
    """

    def __init__(self, session: Session, namespace: str, ledger: Ledger) -> None:
        self._session = session
        self._namespace = namespace
        self._ledger = ledger
        self._templates: set[str] = set()

    @asynccontextmanager
    async def nodes(self, situations: Sequence[Situation]) -> AsyncIterator[None]:
        """Have a node for each situation inside the block, known to the scheduler."""
        try:
            await asyncio.gather(*map(self._add_node, situations))
            await self._await_scheduler()
            yield
        finally:
            await asyncio.gather(*map(self._remove_node, (*situations, _PROBE)))

    async def place(
        self, situation: Situation, pod: Json, templates: Iterable[Template]
    ) -> tuple[Claim, ...] | None:
        """Create a pod for a situation's node; return its claims, or None if it has no place."""
        await asyncio.gather(*map(self._ensure, templates))
        name, entries = pod["metadata"]["name"], len(pod["spec"].get("resourceClaims", ()))
        while True:
            await self._session.create(self._path("pods"), _bound_to(situation, pod))
            verdict = await self._ledger.verdict(name, entries)
            if not verdict.is_forgotten:
                return verdict.claims
            await self.release(name)

    async def book(self, situation: Situation, name: str, shares: Sequence[Share]) -> None:
        """Have a pod hold given shares of given cards.

        Raises:
            ValueError: if the scheduler finds no room for them.
        """
        templates = [_template(share) for share in shares]
        if await self.place(situation, _holder(name, templates), templates) is None:
            raise ValueError(f"{situation.name}: there is no room for {shares}")

    async def remove(self, name: str) -> None:
        """Delete a pod, if it is there, without waiting for what it holds."""
        with contextlib.suppress(NotFoundError):
            await self._session.delete(f"{self._path('pods')}/{name}", options=_NOW)

    async def release(self, name: str) -> None:
        """Delete a pod and wait until what it held is free."""
        await self.remove(name)
        await self._ledger.released(name)

    async def finish(self, name: str) -> None:
        """Let a pod complete, and wait until what it held is free."""
        status = {"status": {"phase": "Succeeded"}}
        await self._session.patch(f"{self._path('pods')}/{name}/status", status)
        await self.release(name)

    async def _ensure(self, template: Template) -> None:
        if template.name not in self._templates:
            with contextlib.suppress(ConflictError):
                await self._session.create(
                    self._path("resourceclaimtemplates", _RESOURCES), template.manifest()
                )
            self._templates.add(template.name)

    async def _add_node(self, situation: Situation) -> None:
        name = self._node(situation)
        node = {
            "metadata": {"name": name, "labels": {_HOST: situation.name}},
            "status": {"capacity": _ROOM, "allocatable": _ROOM},
        }
        made = await self._session.create(_NODES, node)
        cards = published(situation, node=name, node_uid=made["metadata"]["uid"], driver=_DRIVER)
        await self._session.create(_SLICES, cards)

    async def _await_scheduler(self) -> None:
        """Wait until the scheduler knows every node and slice: it learns of each kind in order.

        A first verdict is final after that: whatever is freed later, it learns of before it learns
        of the next pod's claims.
        """
        await self._add_node(_PROBE)
        template = _template(Share("GPU-probe", 1, 0, WHOLE))
        await self._ensure(template)
        pod = _bound_to(_PROBE, _holder(_PROBE.name, [template]))
        await self._session.create(self._path("pods"), pod)
        await self._ledger.bound(_PROBE.name)
        await self.release(_PROBE.name)

    async def _remove_node(self, situation: Situation) -> None:
        name = self._node(situation)
        for path in (f"{_SLICES}/00000-{_DRIVER}-{name}", f"{_NODES}/{name}"):
            with contextlib.suppress(NotFoundError):
                await self._session.delete(path)

    def _node(self, situation: Situation) -> str:
        return f"{self._namespace}-{situation.name}"

    def _path(self, resource: str, root: str = "/api/v1") -> str:
        return f"{root}/namespaces/{self._namespace}/{resource}"


def _bound_to(situation: Situation, pod: Json) -> Json:
    """Add what keeps a pod to its situation's node, and off what no test needs."""
    added = {
        "nodeSelector": {_HOST: situation.name},
        "tolerations": [{"operator": "Exists"}],
        "automountServiceAccountToken": False,
    }
    return {**pod, "spec": {**pod["spec"], **added}}


def _holder(name: str, templates: Sequence[Template]) -> Json:
    entries = [
        {"name": f"share-{number}", "resourceClaimTemplateName": template.name}
        for number, template in enumerate(templates)
    ]
    claims = [{"name": entry["name"]} for entry in entries]
    container = {"name": "c", "image": "none", "resources": {"claims": claims}}
    spec = {"containers": [container], "resourceClaims": entries}
    return {"metadata": {"name": name}, "spec": spec}


def _template(share: Share) -> Template:
    """Return a template for a share of one certain card."""
    capacity = {
        "memory": f"{share.memory_mib}Mi",
        "cores": str(share.cores),
        "slots": str(share.slots),
    }
    is_it = f'device.attributes["{_DRIVER}"].uuid == "{share.uuid}"'
    exactly = {
        "deviceClassName": _DRIVER,
        "allocationMode": "ExactCount",
        "count": 1,
        "capacity": {"requests": capacity},
        "selectors": [{"cel": {"expression": is_it}}],
    }
    digest = hashlib.sha256(json.dumps(exactly).encode()).hexdigest()[:16]
    devices = {"requests": [{"name": "share", "exactly": exactly}]}
    return Template(f"share-{digest}", {"spec": {"devices": devices}})
