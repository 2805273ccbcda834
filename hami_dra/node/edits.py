"""What containers need to use NVIDIA's cards, from a CDI spec that NVIDIA's toolkit made.

`nvidia-ctk` knows the driver's libraries, device nodes and hooks better than a list of ours could
stay. Its spec is taken apart: what all cards share, and what one card needs.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from hami_dra.migration import Json
from hami_dra.node.backend import BackendError
from hami_dra.node.cdi import NodeEdits
from hami_dra.node.inventory import Card

TOOL: Final = "nvidia-ctk"

_TIME_S: Final = 60
_KIND: Final = "nvidia.com/gpu"
_SPECS: Final = ("etc/cdi/nvidia.yaml", "etc/cdi/nvidia.json", "var/run/cdi/nvidia.yaml")
_ALL: Final = "all"
_TIME_OF_LINE: Final = re.compile(r'time="[^"]*" ?')
# What CDI 0.5.0 knows; a runtime refuses a whole file for one unknown field.
_FIELDS: Final = {
    "deviceNodes": frozenset(
        {"path", "hostPath", "type", "major", "minor", "fileMode", "permissions", "uid", "gid"}
    ),
    "mounts": frozenset({"hostPath", "containerPath", "options", "type"}),
    "hooks": frozenset({"hookName", "path", "args", "env", "timeout"}),
}


def from_toolkit(cards: Sequence[Card], *, tool: str = TOOL) -> NodeEdits:
    """Ask NVIDIA's toolkit.

    Raises:
        BackendError: if it is not there or does not know the cards.
    """
    program = shutil.which(tool)
    if program is None:
        raise BackendError(
            f"found no {tool}: install nvidia-container-toolkit in the agent's image or on the node"
        )
    argv = [program, "cdi", "generate", "--format=json", "--device-name-strategy=uuid"]
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=_TIME_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise BackendError(f"{tool} did not answer within {_TIME_S} s") from error
    except OSError as error:
        raise BackendError(f"{tool} cannot be run: {error}") from error
    if done.returncode:
        # Without the time, the same failure is the same trouble and told once.
        text = _TIME_OF_LINE.sub("", done.stderr).strip()
        raise BackendError(f"{tool} cdi generate failed: {text[-500:]}")
    try:
        spec = json.loads(done.stdout)
    except ValueError as error:
        raise BackendError(f"{tool} cdi generate did not write JSON: {error}") from error
    return take_apart(spec, cards, f"the output of {tool}")


def host_specs(root: Path = Path("/")) -> tuple[Path, ...]:
    """Return where an administrator's spec may be, first come first served."""
    return tuple(root / name for name in _SPECS)


def from_host(cards: Sequence[Card], *, root: Path = Path("/")) -> NodeEdits:
    """Read the spec that an administrator has had made on the host.

    Raises:
        BackendError: if there is none, or it does not fit the driver that runs now.
    """
    for path in host_specs(root):
        if not path.is_file():
            continue
        try:
            spec = YAML(typ="safe", pure=True).load(path.read_text())
        except (OSError, ValueError, RecursionError, YAMLError) as error:
            raise BackendError(f"{path} cannot be read: {error}") from error
        edits = take_apart(spec, cards, str(path))
        _refuse_stale(edits, cards, path)
        return edits
    raise BackendError(
        f"found no CDI spec of NVIDIA's toolkit, expected one of {', '.join(_SPECS)} below {root};"
        " make one with `nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml"
        " --device-name-strategy=uuid`"
    )


def take_apart(spec: object, cards: Sequence[Card], source: str) -> NodeEdits:
    """Split a spec of all cards into what they share and what each needs.

    Raises:
        BackendError: if it is no such spec, or a card is not in it.
    """
    if not isinstance(spec, dict) or spec.get("kind") != _KIND:
        raise BackendError(f"{source} is no CDI spec of kind {_KIND}")
    try:
        return _split(spec, cards, source)
    except (AttributeError, TypeError, ValueError) as error:
        raise BackendError(f"{source} has another form than a CDI spec: {error}") from error


def _split(spec: Json, cards: Sequence[Card], source: str) -> NodeEdits:
    devices = {
        str(device.get("name")): device.get("containerEdits") or {}
        for device in spec.get("devices") or ()
        if isinstance(device, dict)
    }
    found = {card.uuid: edits for card in cards for edits in _of_card(devices, card)}
    if missing := sorted(card.uuid for card in cards if card.uuid not in found):
        raise BackendError(
            f"{source} does not name the cards {', '.join(missing)}; make it anew with"
            " --device-name-strategy=uuid"
        )
    if moved := sorted(card.uuid for card in cards if _node(card) not in _nodes(found[card.uuid])):
        # Without it, or with another card's, containers would start and compute nowhere or there.
        raise BackendError(
            f"{source} does not give the cards {', '.join(moved)} the device nodes that they have"
            " now; make it anew"
        )
    common = _known(spec.get("containerEdits") or {})
    return NodeEdits(common, {uuid: _known(edits) for uuid, edits in found.items()})


def _of_card(devices: Mapping[str, Json], card: Card) -> Iterator[Json]:
    """Find a card by its UUID, or else by its device node; numbers by index move."""
    if card.uuid in devices:
        yield devices[card.uuid]
        return
    for name, edits in devices.items():
        if name != _ALL and _node(card) in _nodes(edits):
            yield edits
            return


def _node(card: Card) -> str:
    return f"/dev/nvidia{card.minor}"


def _nodes(edits: Json) -> list[str]:
    return [each.get("path") for each in edits.get("deviceNodes") or ()]


def _known(edits: Json) -> Json:
    """Keep what CDI 0.5.0 has words for."""
    kept: Json = {"env": [str(each) for each in edits.get("env") or ()]}
    for name, fields in _FIELDS.items():
        kept[name] = [
            {key: value for key, value in each.items() if key in fields}
            for each in edits.get(name) or ()
        ]
    return {name: items for name, items in kept.items() if items}


def _refuse_stale(edits: NodeEdits, cards: Sequence[Card], path: Path) -> None:
    """Refuse a spec that was made for another version of the driver."""
    mounts = [str(mount.get("hostPath")) for mount in edits.common.get("mounts") or ()]
    libraries = [each for each in mounts if "libcuda.so." in each]
    version = next((card.driver_version for card in cards), "")
    if libraries and version and not any(each.endswith(version) for each in libraries):
        raise BackendError(
            f"{path} was made for another driver ({Path(libraries[0]).name}), and {version} runs;"
            " make it anew"
        )
