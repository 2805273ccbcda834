"""Names of the sockets between kubelet and agent.

A socket's path holds 107 bytes. The driver's name and a pod's UID do not fit together, so two
instances that live at one time, as in a rolling update, are told apart by a digest.
"""

import contextlib
import hashlib
import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_LONGEST: Final = 107
_DIGITS: Final = 10
_TRY_S: Final = 1.0


class SocketPathError(ValueError):
    """The kernel cannot bind a socket at this path."""


@dataclass(frozen=True, slots=True)
class Sockets:
    """The two sockets of one instance.

    Attributes:
        registration: found by the kubelet, by its folder.
        plugin: told to the kubelet at registration.
    """

    registration: Path
    plugin: Path


def choose(registry: Path, plugin_directory: Path, driver: str, instance: str = "") -> Sockets:
    """Name the sockets of an instance.

    Args:
        registry: the kubelet's folder of registration sockets.
        plugin_directory: the folder for the plugin's own.
        driver: the driver's name.
        instance: tells apart what lives at one time, such as the pod's UID; empty for only one.

    Raises:
        SocketPathError: if the folders' paths are too long.
    """
    mark = f"-{hashlib.sha256(instance.encode()).hexdigest()[:_DIGITS]}" if instance else ""
    sockets = Sockets(
        registration=registry / f"{driver}{mark}-reg.sock",
        plugin=plugin_directory / f"dra{mark}.sock",
    )
    for path in (sockets.registration, sockets.plugin):
        size = len(os.fsencode(path))
        if size > _LONGEST:
            raise SocketPathError(
                f"{path}: found a path of {size} bytes, expected at most {_LONGEST} for a socket;"
                " choose shorter directories"
            )
    return sockets


def remove_dead(directory: Path, prefix: str) -> tuple[str, ...]:
    """Remove the sockets that killed instances left; return their names.

    The kubelet would dial them again and again. A socket that somebody answers stays.

    Args:
        directory: where to look.
        prefix: how the names of ours begin.
    """
    removed = [
        path.name
        for path in sorted(directory.glob(f"{prefix}*.sock"))
        if _is_socket(path) and not _answers(path)
    ]
    for name in removed:
        with contextlib.suppress(FileNotFoundError):
            (directory / name).unlink()
    return tuple(removed)


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(_TRY_S)
        try:
            line.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            # Busy or forbidden is not dead.
            return True
        return True
