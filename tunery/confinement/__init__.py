"""Confinement of processes that handle what tenants upload: files, network, processes, limits.

A confined process is started through `enter`, which gives up rights and then becomes the program:
nothing of the program runs before that. It works for every user, root included, and needs no
daemon, no set-user-id helper and no control group.
"""
