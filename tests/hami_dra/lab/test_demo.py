"""What the demo runs is what the examples name."""

from hami_dra.lab.demo import EXAMPLES, images
from hami_dra.lab.webhook import manifests


def test_every_example_has_an_image_to_run() -> None:
    found = images(manifests() / "examples")

    assert len(found) == len(EXAMPLES)
    assert all(name.startswith("registry.example/") for name in found)
