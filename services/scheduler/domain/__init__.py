"""Pure decisions of the scheduler.

job/       stream `job`: quota, holds, attempts
pool/      stream `pool`: nodes, leases, use
liveness   which nodes are alive, by the journal and by their heartbeats
"""
