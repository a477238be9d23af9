"""Confinement of processes that handle what tenants upload: files, network, processes, limits.

A confined process is started through `enter`, which gives up rights and then becomes the program:
nothing of the program runs before that. It works for every user, root included, and needs no
daemon, no set-user-id helper and no control group.

* `policy`: what a process may do, and the policies of an interpreter
* `confined`: how a service starts confined processes; the operator's choice
* `enter`: the program that applies a policy to itself, then becomes another
* `fork_server`: a program that has loaded what workers need, and forks one for each task
* `forking`: how a service starts a fork server, and workers by it
* `landlock`: files that may be read and written, and signals (kernel)
* `filters`: system calls that are refused (seccomp)
* `namespaces`: a user, network and IPC namespace of its own, and no capabilities
* `libc`: the calls of the C library that Python does not have
* `support`: which of these this machine has
* `taking`: files of a confined process, opened without following what it may have put in the way
"""
