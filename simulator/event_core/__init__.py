"""Scenario: the toy streams of `examples/first_stream.py` on the production hosts.

`scenario.py`       the scenario as the command line knows it
`run.py`            the plan that a seed draws, and what a run leaves behind
`simulation.py`     one run: processes, clients, readers, faults, and the end of all faults
`views.py`          the projection and the effect of the toy streams
`invariants.py`     what must hold after any run, as pure functions of the records
`check.py`          applies all invariants to a run
`mutants.py`        each rule of the event core, the seed that shows it broken
`broken_rules.py`   the broken rules themselves
"""
