"""The packages below the services, and the command line and the client.

runtime: the event core: log, journal, hosts of the five verbs, stores, blobs, keys
confinement: what processes that read tenants' files may do
work: the training process as a typed port: specifications, events, exit codes
ranks: processes that share one training, joined, followed and ended as one
graders: what an answer is worth, by a declaration
benchmarks: the file of a benchmark that the gate asks, and what answers to it are worth
measures: what an answer to a tenant's own row is worth: measures by name, patterns, graders
gate: statistics of the gate, and its decision
billing: invoices, as pure functions of usage, prices and terms
provenance: signatures and lineage of published versions, and their verification
mirrors: a job as TensorBoard, MLflow and W&B show it
plan: memory, time, hyper-parameters and prices of a job, before it runs
data: training rows: reading, checking, rendering, packing
ml: training, checkpoints and scoring; the only package that imports torch
local: the servers and services of one machine
cli: the command line
client: the Python client
"""
