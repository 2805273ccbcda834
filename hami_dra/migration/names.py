"""Names that every part knows; the node agent needs no more of this package."""

from typing import Final

DRIVER: Final = "hami-core-gpu.project-hami.io"
"""Name of our DRA driver and of its DeviceClass (ruling 37)."""
