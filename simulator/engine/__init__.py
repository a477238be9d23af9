"""The parts that all scenarios share, independent of their streams.

`virtual_loop.py`   an event loop on virtual time
`broker.py`         the log with faults; it outlives the processes
`faulty_port.py`    one process's access to the log: slow, paused or closed at any await
`stores.py`         the SQL store and the object storage behind such a port
`cluster.py`        processes that start, crash, pause and are replaced
`faults.py`         faults, drawn from a seed, and counts of those that happened
`sim_log.py`        the log as clients and audits see it: requests, decisions, random numbers
`verdict.py`        the interface of a scenario, and the result of a run
`command_line.py`   plays many seeds on all cores, or one with its timeline; makes a failing plan
                    as small as it can be
"""
