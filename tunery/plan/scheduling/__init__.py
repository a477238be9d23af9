"""The planner: which placements start, who is stopped for whom, and what is held for the first.

It is pure and knows no journal: the scheduler fills it from the pool's state, the gateway from its
rows, `tunery simulate` from a trace. Times are integers that come from its caller, and every order
ends in an identifier.

requests     what waits, what runs, and where
policy       parameters: lanes, order, backfill, the bound of preemptions
capacity     free slots of nodes by kind; best fit and gangs of whole nodes
shares       what tenants have used of late, with a half-life
queue        what waits, by lane, request class and tenant, in order of service
expectations  when a lease ends, and what it would lose if it was stopped
outlook      what is expected of nodes, kept until it changes
planning_state  the state that is planned on, changed by one fact at a time
draft        that state, once what a pass has decided so far is carried out
reservation  when and where the first blocked request will fit, and what may start before it
premium_cap  how much premium may hold before others are served
victims      leases whose end makes room for a request with the least loss
plan         one pass over the queue: starts, preemptions, the reservation
forecast     when what waits is expected to start: the queue played through
explanation  position, reason and expected start of everything that waits
"""
