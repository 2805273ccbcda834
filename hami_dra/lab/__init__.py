"""One-host clusters: a real Kubernetes control plane without containers.

Empty on purpose: the keeper process imports this package and must stay small.
Start with `hami_dra.lab.cluster.Cluster`.
"""
