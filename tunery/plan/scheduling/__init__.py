"""The planner: which placements start, who is stopped for whom, and what is held for the first.

It is pure and knows no journal: the scheduler fills it from the pool's state, the gateway from its
rows, `tunery simulate` from a trace. Times are integers that come from its caller, and every order
ends in an identifier.
"""
