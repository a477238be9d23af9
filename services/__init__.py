"""The services: one folder per process, each with a README.

gateway: the HTTP API
ingest: training files, from upload to packed rows
scheduler: jobs and quota; nodes, leases and usage
engine: answers of base models and versions
trainer: the agent of a node, and the processes that it starts
eval: the verdict about an adapter
registry: base models, versions and their stages
billing: tenants, keys, the ledger and invoices
notifier: webhooks
watcher: anomalies of trainings, from their telemetry
exporter: use of GPU time as files for finance
"""
