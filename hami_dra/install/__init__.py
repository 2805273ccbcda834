"""What is installed in a cluster, and in which order: manifests as dicts, and the calls for them.

The manifests are `manifests/` as kustomize renders them; `make manifests` writes them here.
"""
