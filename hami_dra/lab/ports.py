"""Choose loopback ports that nobody uses."""

import random
import socket

LOOPBACK = "127.0.0.1"

# Below the range from which the kernel gives out ports by itself, so that a connection of
# a component that starts meanwhile cannot take one; below the node ports of a real cluster.
_RANGE = range(20000, 30000)


def free_ports(count: int) -> tuple[int, ...]:
    """Return so many different ports that are free now.

    They may be taken before they are used; who uses them tries again with others.
    """
    chosen: list[int] = []
    for port in random.sample(_RANGE, len(_RANGE)):
        if len(chosen) == count:
            break
        if _is_free(port):
            chosen.append(port)
    return tuple(chosen)


def free_port(wanted: int) -> int:
    """Return a port that is free now, the wanted one if it is."""
    return wanted if _is_free(wanted) else free_ports(1)[0]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: a port in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
