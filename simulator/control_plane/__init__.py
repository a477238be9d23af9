"""Scenario: scheduler and billing, with tenants who submit jobs and nodes that fail.

`scenario.py`            the scenario as the command line knows it
`plan.py`                what a seed draws: jobs, changes, faults
`control_plane_sim.py`   one run: faulty time first, then the end of every job
`sim_context.py`         the state that all parts of a run share: broker, names, random numbers
`hosts.py`               the hosts that the simulated processes run
`tenants.py`             tenants, and stubs of the other services
`agent.py`               a node agent and its attempts, as state and messages
`attempts.py`            what runs under a lease, as tasks on virtual time
`gangs.py`               what agents of a lease of several nodes tell each other
`nodes.py`               machines, and their agents as tasks on virtual time
`bills.py`               price books, and bills as production makes them and as they must be
`books.py`               both independent accounts, kept together
`true_usage.py`          what a lease must cost, without the scheduler's arithmetic
`usage_books.py`         independent accounts of GPU time: what each lease must have cost
`start_limits.py`        independent accounts of starts: which leases had time for them
`key_books.py`           an independent account of keys: who may be given those of a lease
`quota_books.py`         independent accounts of limits, holds and ends of jobs
`audit.py`               compares the run with these accounts
`journals.py`            the records of a run, to be loaded into real servers
`samples.py`             plausible messages, also for the unit tests of the scheduler
`mutants.py`             rules of the scheduler, each broken once
"""
