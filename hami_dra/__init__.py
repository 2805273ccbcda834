"""hami-dra: HAMi GPU sharing manifests, unchanged, on Dynamic Resource Allocation."""

__version__ = "0.1.0"
