"""Names that every part knows; the node agent needs no more of this package."""

from typing import Final

DRIVER: Final = "hami-core-gpu.project-hami.io"
"""Name of our DRA driver and of its DeviceClass (ruling 37)."""

PRIORITY: Final = "hami-dra.io/priority"
"""Annotation of a claim: HAMi's CUDA_TASK_PRIORITY, 0 is high. The agent hands it on."""

CORE_POLICY: Final = "hami-dra.io/core-policy"
"""Annotation of a claim: HAMi's gpuCorePolicy, which is default, force or disable."""
