"""Benchmarks. Each prints its figures; `figures` keeps them and writes `docs/figures.md`.

core: the event core beside the bare Kafka client; its parts are in log
gateway, bare_gateway: the API under load beside a bare FastAPI handler
estimates: what jobs cost beside what their estimates said
submit: how long a submission takes
follow: followers of one job over server-sent events
fairness, loads: what one tenant at its limits costs another, pool by pool
billing: the ledger and invoices in PostgreSQL
scheduler, full_pool: what the planner decides on public traces, and how fast in a full pool
journals: how much one job adds to the journals
rebuild: all state rebuilt from the log
trainer: training beside plain TRL, on a processor or a GPU
ranks: one rank beside several, on processors and on GPUs
offload: a base that stays in the machine's memory beside one that the device keeps
colocated: four trainings in one process beside one after another
bases: models of known shapes with random weights
scoring: the gate's scorer beside lm-evaluation-harness
evaluation: the gate with all that a tenant can ask of it
serve: answers of the engine beside plain generate of transformers
adaptation: QLoRA and other settings of a training beside LoRA
data: the data pipeline, stage by stage
measures: shared by the benchmarks over HTTP
"""
