"""What a node should be doing: `state` (its leases), `evolve` (one event more).

`rank_times`: which rank of a training the others wait for.
"""
