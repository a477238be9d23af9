"""Benchmarks. Each prints its figures; `figures` keeps them and writes `docs/figures.md`.

core: the event core compared with the bare Kafka client; its parts are in log
gateway, bare_gateway: the API under load compared with a bare FastAPI handler
estimates: what jobs cost compared with what their estimates said
submit: how long a submission takes
follow: followers of one job over server-sent events
verdict: a short job from its submission to its verdict, in one process and in two
fairness, loads: what one tenant at its limits costs another, pool by pool
billing: the ledger and invoices in PostgreSQL
scheduler, full_pool: what the planner decides on traces, and how fast in a full pool
scale: nodes, tenants and stopped partitions of a large installation
journals: how much one job adds to the journals
rebuild: all state rebuilt from the log
trainer: training compared with plain TRL, on a processor or a GPU
ranks: one rank compared with several, on processors and on GPUs
gpu: several ranks over NCCL in the sandbox, on whatever GPU there is
colocated: four trainings in one process compared with one after another
bases: models of known shapes with random weights
scoring: the gate's scorer compared with lm-evaluation-harness
evaluation: the gate with all that a tenant can ask of it
serve: answers of the engine compared with plain generate of transformers
adaptation: QLoRA and other settings of a training compared with LoRA
data: the data pipeline, stage by stage
measures: shared by the benchmarks over HTTP
"""
