"""What container runtimes accept as a CDI file, written from the specification's text alone.

Independent of the code under test on purpose: it shares no constant with it.
"""

import json
import re
from pathlib import Path
from typing import Any

from hami_dra.migration import Json

HERE = Path("/")
"""The file system in which host paths have to exist; None looks for none."""

_TOP = {"cdiVersion", "kind", "containerEdits", "devices"}
_DEVICE = {"name", "containerEdits"}
_EDITS = {"env", "deviceNodes", "mounts", "hooks"}
_MOUNT = {"hostPath", "containerPath", "options", "type"}
_NODE = {"path", "hostPath", "type", "major", "minor", "fileMode", "permissions", "uid", "gid"}
_HOOK = {"hookName", "path", "args", "env", "timeout"}
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_VENDOR = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_CLASS = re.compile(r"[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?")


def validate(path: Path, *, root: Path | None = HERE) -> Json:
    """Return the content of a file that a runtime with CDI 0.5.0 would take."""
    assert path.suffix in {".json", ".yaml"}, path
    found: Json = json.loads(path.read_text())
    _only(found, _TOP)
    assert found["cdiVersion"] == "0.5.0"
    vendor, _, kind = found["kind"].partition("/")
    assert _VENDOR.fullmatch(vendor), vendor
    assert _CLASS.fullmatch(kind), kind
    names = [device["name"] for device in found["devices"]]
    assert names, "a file needs a device"
    assert len(set(names)) == len(names), "one name twice"
    for device in found["devices"]:
        _only(device, _DEVICE)
        assert _NAME.fullmatch(device["name"]), device["name"]
        assert device["containerEdits"], "a device needs edits"
    _check_edits(found.get("containerEdits") or {}, root=root)
    for device in found["devices"]:
        _check_edits(device["containerEdits"], root=root)
    return found


def validate_all(directory: Path, *, root: Path | None = HERE) -> dict[str, Json]:
    """Validate every file of a CDI directory; no device may stand in two of them."""
    specs = {
        path.name: validate(path, root=root)
        for path in sorted(directory.iterdir())
        if path.suffix in {".json", ".yaml"}
    }
    names = [
        f"{spec['kind']}={device['name']}" for spec in specs.values() for device in spec["devices"]
    ]
    assert len(set(names)) == len(names), "a device in two files resolves to neither"
    return specs


def edits_for(specs: dict[str, Json], ids: tuple[str, ...]) -> Json:
    """Apply devices as a runtime does: a file's edits once, then each device's; the last wins."""
    env: dict[str, str] = {}
    mounts: dict[str, Json] = {}
    nodes: list[str] = []
    seen: set[str] = set()
    for wanted in ids:
        kind, _, name = wanted.partition("=")
        [(file, spec, device)] = [
            (file, spec, device)
            for file, spec in specs.items()
            for device in spec["devices"]
            if (spec["kind"], device["name"]) == (kind, name)
        ]
        parts = [] if file in seen else [spec.get("containerEdits") or {}]
        seen.add(file)
        for edits in (*parts, device["containerEdits"]):
            env.update(entry.split("=", 1) for entry in edits.get("env") or ())
            mounts.update((mount["containerPath"], mount) for mount in edits.get("mounts") or ())
            nodes += [node["path"] for node in edits.get("deviceNodes") or ()]
    return {"env": env, "mounts": mounts, "nodes": nodes}


def _check_edits(edits: Json, *, root: Path | None) -> None:
    _only(edits, _EDITS)
    for entry in edits.get("env") or ():
        name, is_pair, _ = entry.partition("=")
        assert name, entry
        assert is_pair, entry
    for mount in edits.get("mounts") or ():
        _only(mount, _MOUNT)
        assert Path(mount["containerPath"]).is_absolute()
        if root is not None:
            assert (root / mount["hostPath"].lstrip("/")).exists(), mount
    for node in edits.get("deviceNodes") or ():
        _only(node, _NODE)
        assert Path(node["path"]).is_absolute()
    for hook in edits.get("hooks") or ():
        _only(hook, _HOOK)
        assert hook["hookName"]
        assert Path(hook["path"]).is_absolute()


def _only(found: dict[str, Any], known: set[str]) -> None:
    assert set(found) <= known, f"unknown fields {set(found) - known}"
