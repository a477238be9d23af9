"""Adapters of the cluster's agent: Kubernetes, the server for pods, signed URLs."""
