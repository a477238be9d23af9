"""A small Kubernetes cluster on this machine, without a container engine.

`programs.py`  builds the control plane once, from its Go modules, and keeps it
`cluster.py`   runs it: API server, etcd, controllers, scheduler, JobSet, Kueue
`kubelet.py`   a node of it, whose pods are processes
`laptop.py`    all of that beside a stack: `tunery up --kubernetes`
"""
