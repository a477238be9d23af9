"""What every scenario stands on; it knows nothing of the streams that a scenario plays.

`virtual_loop.py`   an event loop on virtual time
`broker.py`         the log with faults; it outlives the processes
`faulty_port.py`    one process's way to the log: slow, paused or closed for ever at any await
`stores.py`         the SQL store and the object storage behind such a port
`cluster.py`        processes that start, crash, pause and are replaced
`faults.py`         what may go wrong, drawn from a seed, and the tally of what did
`verdict.py`        what a scenario is, and what a run of it says
`shrink.py`         makes a failing plan as small as it can be
`command_line.py`   plays many seeds on all cores, or one with its timeline
"""
