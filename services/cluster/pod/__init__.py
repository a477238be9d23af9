"""The program in the pod of a lease: `python -m services.cluster.pod`.

It runs the attempt that a node's agent would run, with the confined work as its child. It has no
account of Kafka, of object storage or of Kubernetes: it reaches its agent alone, and single objects
by URLs that the agent signs. The key pair of the lease is made here, and never leaves.
"""
