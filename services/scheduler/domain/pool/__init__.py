"""Stream `pool`: nodes, the waiting queue, leases and their use.

state       what is remembered of a pool
decide      facts first, then grants, then explanations
nodes       facts about nodes: registered, retired, observed
experience  how long ended work took, for the estimates of what follows
price_classes  spot nodes: which placements may have them, and what jobs lost on them
locality    fabric domains: who waits for nodes of one, and for how long
faults      nodes that fail under jobs: back-off, and cordons
reports     what agents report about their leases
speakers    a node speaks for itself alone
lease_keys  which keys the agent of a lease may have
enrolment   invitations of nodes: a token that is used once
deadlines   what is due when: notices before the cap, kills, silence of agents
closing     the end of a lease for money
planned_pool  the pool as the planner sees it
carried     the planned pool, carried from one state of the pool to the next
placement   from the pool's state to the planner and back, and why placements wait
usage       the money of a lease as arithmetic
evolve      the fold of the journal
"""
