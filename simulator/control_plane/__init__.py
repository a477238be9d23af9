"""Scenario: scheduler and billing, with tenants who submit jobs and nodes that fail.

`scenario.py`            the scenario as the command line knows it
`plan.py`                what a seed draws: jobs, changes, faults
`control_plane_sim.py`   one run: faulty time first, then the end of every job, and closed months
`sim_context.py`         the state that all parts of a run share: broker, names, random numbers,
                         messages between the agents of a lease of several nodes
`hosts.py`               the hosts that the simulated processes run
`tenants.py`             tenants, and stubs of the other services
`errands.py`             what happens besides jobs: operators, contracts, months, erasure
`node_errands.py`        longer ones: nodes that are forgotten, spot nodes, a month's turn
`work_errands.py`        errands of jobs and nodes: sweeps, looks, reports, orders, devices, keys
`exports.py`             the exporter of a run, and an independent account of its files
`agent.py`               a node agent and its attempts, as state and messages
`attempts.py`            what runs under a lease, as tasks on virtual time
`nodes.py`               machines, and their agents as tasks on virtual time
`bills.py`               price books, and bills as production makes them and as they must be
`books.py`               all independent accounts, kept together; those of starts and keys
`true_usage.py`          what a lease must cost, without the scheduler's arithmetic
`usage_books.py`         independent accounts of GPU time: what each lease must have cost
`quota_books.py`         independent accounts of limits, holds and ends of jobs
`account_books.py`       independent accounts of keys, endpoints, credits and closed months
`sweep_books.py`         independent accounts of sweeps, reports and erased jobs
`serving_books.py`       an independent account of serving pools
`placement_books.py`     an independent account of where leases go: domains, spot, warnings, drains
`node_books.py`          an independent account of nodes: leases, cordons, devices, tokens, keys
`coverage.py`            which kinds of commands and events runs meet, and why others are not played
`audit.py`               compares the run with these accounts
`journals.py`            the records of a run, to be loaded into real servers
`samples.py`             plausible messages, also for the unit tests of the scheduler
`mutants.py`             rules of the scheduler, each broken once
`account_mutants.py`     rules of accounts, likewise
`work_mutants.py`        rules of sweeps, serving pools, reports, erased jobs and nodes, likewise
`export_mutants.py`      rules of the exporter, likewise
`node_mutants.py`        rules of where leases go, likewise
"""
