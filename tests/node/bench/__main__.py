"""Measure the node agent: `make bench-node`."""

import argparse

from hami_dra.lab.realnode import why_not
from tests.node.bench import agent, pods

_IDLE_S = 20.0
_LONG_S = 600.0


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help="be idle for ten minutes, not 20 s")
    parser.add_argument(
        "--only", choices=["agent", "example", "pods"], help="measure this part alone"
    )
    chosen = parser.parse_args()
    if chosen.only in {None, "agent"}:
        agent.measure(_LONG_S if chosen.long else _IDLE_S)
    if chosen.only in {None, "example"}:
        print("the Kubernetes example driver, in Go:")
        agent.measure_example()
    if chosen.only in {None, "pods"}:
        if reason := why_not():
            print(f"pods are left out: {reason}")
        else:
            pods.measure()


if __name__ == "__main__":
    main()
