"""Scenario: the seats of `examples/first_stream.py` and a tally, on the production hosts.

`scenario.py`       the scenario as the command line knows it
`streams.py`        the two streams, and the reaction between them
`releases.py`       two later releases of the seats, for rolling upgrades
`views.py`          the projection and the effect of the streams
`run.py`            the plan that a seed draws, and what a run leaves behind
`simulation.py`     one run: processes, clients, readers, faults, and the end of all faults
`invariants.py`     what must hold after any run, as pure functions of the records
`check.py`          applies all invariants to a run
`mutants.py`        each rule of the event core, and the seed that shows it broken
`broken_rules.py`   the broken rules themselves
"""
