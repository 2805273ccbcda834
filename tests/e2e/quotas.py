"""What the tests of quotas do to a world: set quotas, write claims, race through two replicas."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from hami_dra.cli.app import app
from hami_dra.kube.errors import ApiError
from hami_dra.kube.ledgers import PREFIX
from hami_dra.kube.session import Session
from hami_dra.lab import webhook
from hami_dra.lab.api import Api
from hami_dra.lab.failure import KubectlError
from hami_dra.lab.wait import until
from hami_dra.migration import Json, Policy
from hami_dra.migration.names import DRIVER
from hami_dra.migration.registration import NAME, SYSTEM_NAMESPACE, claim_webhook_configuration
from tests.e2e.world import World, pod

VALIDATING: Final = "validatingwebhookconfigurations"


def claim(name: str, memory: str | None, device_class: str = DRIVER) -> Json:
    """Write a claim by hand; without an amount it asks for a whole card."""
    exactly: Json = {"deviceClassName": device_class}
    if memory:
        exactly["capacity"] = {"requests": {"memory": memory, "cores": "0"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


def set_quota(world: World, hard: Mapping[str, object]) -> None:
    """Set the quota `gpus` and wait until whoever is asked about claims heeds it."""
    amounts = {key: str(amount) for key, amount in hard.items()}
    world.apply(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "gpus"},
            "spec": {"hard": amounts},
        }
    )
    limited = next(f"limited: {key}={amount} " for key, amount in amounts.items())

    def heeded(name: str) -> bool:
        too_much, dry = claim(name, "900Ti"), {"dryRun": "All"}
        try:
            world.scene.api.create("resourceclaims", too_much, namespace=world.namespace, query=dry)
        except ApiError as refused:
            return limited in refused.message
        return False

    for name in ("even-probe", "odd-probe"):
        until(partial(heeded, name), what="the quota is heeded")


def refusal(world: World, manifest: Json) -> str:
    """Return what a user sees who creates what does not fit."""
    with pytest.raises(KubectlError) as refused:
        world.apply(manifest)
    return refused.value.stderr


def shown(world: World) -> dict[str, Json]:
    """Return what `hami-dra quota` prints of each key."""
    kubeconfig = str(world.scene.cluster.kubeconfig)
    line = ["quota", "-n", world.namespace, "-o", "json", "--kubeconfig", kubeconfig]
    result = CliRunner().invoke(app, line, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return {each["key"]: each for each in json.loads(result.stdout)}


def ledger(world: World) -> Json | None:
    """Return the ledger of the test's namespace."""
    return world.scene.api.find(
        "configmaps", f"{PREFIX}{world.namespace}", namespace=SYSTEM_NAMESPACE
    )


def refused_claim(world: World, name: str) -> str | None:
    """Return what the event says by which a user learns that a pod's claim was refused."""
    for event in world.objects("events"):
        about, reason = event["involvedObject"]["name"], event["reason"]
        if (about, reason) == (name, "FailedResourceClaimCreation"):
            return str(event["message"])
    return None


@contextmanager
def two_replicas(world: World) -> Iterator[None]:
    """Have claims of even names judged by one replica and all others by another one."""
    scene = world.scene
    second = webhook.start(scene.cluster, name="webhook-2")
    scene.api.delete(VALIDATING, NAME)
    both = claim_webhook_configuration(Policy(), {})
    [model] = both["webhooks"]
    is_even = 'object.metadata.name.startsWith("even-")'
    both["webhooks"] = [
        {
            **model,
            "name": f"{name}.hami-dra.io",
            "clientConfig": config,
            "matchConditions": [
                *model["matchConditions"],
                {"name": "one-of-two", "expression": expression},
            ],
        }
        for name, config, expression in (
            ("even", scene.webhook.claim_config, is_even),
            ("odd", second.claim_config, f"!{is_even}"),
        )
    ]
    scene.api.create(VALIDATING, both)
    try:
        yield
    finally:
        scene.api.delete(VALIDATING, NAME)
        scene.cluster.stop_process(second.process)
        model["clientConfig"] = scene.webhook.claim_config
        scene.api.create(VALIDATING, {**both, "webhooks": [model]})


def name_of(number: int) -> str:
    """Return a name for one replica or the other, in turn."""
    return f"{('even', 'odd')[number % 2]}-{number}"


async def attempt(create: Coroutine[Any, Any, Json]) -> str:
    """Return what a creation ends with: its refusal, or an empty text."""
    try:
        await create
    except ApiError as error:
        return str(error)
    return ""


def together(api: Api, path: str, manifests: list[Json]) -> list[str]:
    """Create all at the same time; return the refusals."""

    async def race(session: Session) -> list[str]:
        return await asyncio.gather(*(attempt(session.create(path, each)) for each in manifests))

    return api.run(race)


def await_room(world: World, path: str) -> None:
    """Wait until both replicas have seen that all is free again."""

    def is_free(prefix: str) -> Callable[[], bool]:
        whole = claim(f"{prefix}-probe", "16000Mi")

        async def ask(session: Session) -> str:
            return await attempt(session.create(path, whole, query={"dryRun": "All"}))

        return lambda: not world.scene.api.run(ask)

    for prefix in ("even", "odd"):
        until(is_free(prefix), what=f"the {prefix} replica knows")


def converted(world: World, name: str, memory: int) -> Json:
    """Return a pod as the webhook makes it, so that it is not asked about it any more."""
    world.apply(pod(name, {"gpu": 1, "gpumem": memory}))
    made = world.pod(name)
    world.delete(name)
    kept = {"name": name, "annotations": made["metadata"]["annotations"]}
    spec = {key: value for key, value in made["spec"].items() if key != "nodeName"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": spec}


def is_bound(world: World, *names: str) -> bool:
    """Tell whether one of the pods has a node."""
    return any(world.pod(name)["spec"].get("nodeName") for name in names)
