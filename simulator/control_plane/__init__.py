"""Scenario: scheduler and billing, with tenants who submit jobs and nodes that fail.

`scenario.py`            the scenario as the command line knows it
`plan.py`                what a seed draws: jobs, changes, faults
`control_plane_sim.py`   one run: faulty time first, then the end of every job
`sim_context.py`         what all of a run shares: the broker, names, random numbers, decisions
`hosts.py`               the hosts that the simulated processes run
`tenants.py`             tenants, and the services that only answer
`agent.py`               a node agent and what it runs, as state and messages
`nodes.py`               machines, and their agents as tasks on virtual time
`books.py`               both second books, kept together
`true_usage.py`          what a lease must cost, without the scheduler's arithmetic
`usage_books.py`         second books of GPU time: what each lease must have cost
`quota_books.py`         second books of limits, holds and ends of jobs
`audit.py`               compares the run with the second books
`journals.py`            a run written down as records that real servers can be given
`samples.py`             plausible messages, also for the unit tests of the scheduler
`mutants.py`             rules of the scheduler, each broken once
"""
