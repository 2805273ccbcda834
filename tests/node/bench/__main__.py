"""Measure the node agent: `make bench-node`."""

import argparse

from tests.node.bench import agent

_IDLE_S = 20.0
_LONG_S = 600.0


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help="be idle for ten minutes, not 20 s")
    chosen = parser.parse_args()
    agent.measure(_LONG_S if chosen.long else _IDLE_S)


if __name__ == "__main__":
    main()
