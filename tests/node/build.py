"""Build what the tests on a real node need, unless it is in the cache.

`python -m tests.node.build`, because builds take minutes once, for which no test should have
to wait with its clock running.
"""

from hami_dra.lab.containerd import runtime
from hami_dra.lab.product import product_image
from hami_dra.lab.realnode import why_not


def main() -> None:
    """Build containerd and the product's image, where there can be a real node."""
    if reason := why_not():
        print(f"nothing is built for tests/node: {reason}")
        return
    print(runtime().directory)
    print(product_image())


if __name__ == "__main__":
    main()
