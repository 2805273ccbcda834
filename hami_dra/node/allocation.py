"""Read what the scheduler gave a claim, and refuse what this node cannot honour. Pure.

Every refusal is one sentence that people meet in the pod's events.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from hami_dra.migration import Json
from hami_dra.migration.quantity import QuantityError, parse
from hami_dra.node.inventory import Card
from hami_dra.node.share import Amounts, Share

_MIB: Final = 2**20
_KNOWN: Final = frozenset({"memory", "cores", "slots"})


class PrepareError(Exception):
    """The claim cannot be prepared here; the text says why and what to do."""


def own_shares(
    claim: Json, *, driver: str, node: str, devices: Mapping[str, Card], default_slots: int
) -> tuple[Share, ...]:
    """Return the shares that a claim holds of this node's cards; other drivers' are passed over.

    Args:
        claim: the ResourceClaim as the API server has it.
        driver: our driver's name.
        node: this node's name, which is its pool's too.
        devices: this node's cards by device name.
        default_slots: what a share counts that was allocated where slots were not published.

    Raises:
        PrepareError: if the claim has no allocation, or one that cannot be honoured here.
    """
    allocation = (claim.get("status") or {}).get("allocation")
    if not allocation:
        raise PrepareError("the claim has no allocation; the scheduler has to allocate it first")
    granted = allocation.get("devices") or {}
    shares = tuple(
        _share(result, node=node, devices=devices, default_slots=default_slots)
        for result in granted.get("results") or ()
        if result.get("driver") == driver
    )
    if shares:
        _refuse_configuration(granted, driver)
    _refuse_twins(shares)
    return shares


def _share(result: Json, *, node: str, devices: Mapping[str, Card], default_slots: int) -> Share:
    pool, device = str(result.get("pool")), str(result.get("device"))
    if result.get("adminAccess"):
        raise PrepareError(
            f"request {result.get('request')!r} asks for adminAccess to {device}, which this driver"
            " does not offer: a container without limits would break those of the others"
        )
    if pool != node:
        raise PrepareError(f"{device} belongs to pool {pool!r}, and this is node {node!r}")
    card = devices.get(device)
    if card is None:
        raise PrepareError(
            f"card {device} is not on this node: it failed, was removed, or another driver had"
            " published it; delete the pod so that it is allocated anew"
        )
    return Share(
        request=str(result.get("request")).partition("/")[0],
        pool=pool,
        device=device,
        share_id=result.get("shareID"),
        uuid=card.uuid,
        amounts=_amounts(device, result.get("consumedCapacity"), default_slots),
    )


def _amounts(device: str, consumed: Mapping[str, str] | None, default_slots: int) -> Amounts:
    """Read what a result is charged; amounts that we did not publish are nobody's to honour."""
    if not consumed:
        raise PrepareError(
            f"card {device} was allocated without amounts (consumedCapacity): switch the feature"
            " gate DRAConsumableCapacity on in kube-apiserver and kube-scheduler, then delete the"
            " pod so that it is allocated anew"
        )
    foreign = sorted(set(consumed) - _KNOWN)
    missing = sorted({"memory", "cores"} - set(consumed))
    if foreign or missing:
        parts = [f"unknown {', '.join(foreign)}"] if foreign else []
        parts += [f"no {', '.join(missing)}"] if missing else []
        raise PrepareError(
            f"card {device} was allocated with {' and '.join(parts)}, expected memory, cores and"
            " slots: another driver had published it; delete the pod so that it is allocated anew"
        )
    slots = _whole(device, "slots", consumed["slots"]) if "slots" in consumed else default_slots
    memory = _whole(device, "memory", consumed["memory"])
    if memory % _MIB or memory == 0:
        raise PrepareError(
            f"card {device} was allocated with memory {consumed['memory']}, expected a positive"
            " multiple of 1Mi"
        )
    return Amounts(memory // _MIB, _whole(device, "cores", consumed["cores"]), slots)


def _whole(device: str, name: str, text: object) -> int:
    try:
        amount = parse(text).integer
    except QuantityError as error:
        raise PrepareError(f"card {device} was allocated with {name}: {error}") from None
    if amount < 0:
        raise PrepareError(f"card {device} was allocated with {name} {text}, expected 0 or more")
    return amount


def _refuse_configuration(granted: Json, driver: str) -> None:
    """Refuse parameters for our driver: ignoring them would run the pod other than asked."""
    for entry in granted.get("config") or ():
        opaque = entry.get("opaque") or {}
        if opaque.get("driver") == driver:
            parameters = opaque.get("parameters") or {}
            kind = f"{parameters.get('apiVersion')} {parameters.get('kind')}"
            source = "DeviceClass" if entry.get("source") == "FromClass" else "claim"
            raise PrepareError(
                f"the {source} configures this driver with {kind}, and this driver has no"
                " parameters; remove the entry from `config`"
            )


def _refuse_twins(shares: tuple[Share, ...]) -> None:
    """Refuse results that nothing tells apart, since a container could not name one of them."""
    for name in _repeated((share.device, share.suffix) for share in shares):
        raise PrepareError(
            f"the claim holds {name[0]} twice in one request without a shareID; delete the pod so"
            " that it is allocated anew"
        )


def _repeated(names: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    seen: set[tuple[str, str]] = set()
    for name in names:
        if name in seen:
            yield name
        seen.add(name)
