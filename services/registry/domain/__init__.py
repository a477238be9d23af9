"""Base models, adapter versions, and the stages they hold.

`state` (what is remembered), `decide`, `trust`, `deployments`, `erasure` and `lifetime` (commands
to events), `evolve` (events to state).
"""
