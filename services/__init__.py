"""One folder for each process. Services share `schemas` and talk through the log alone.

gateway      the HTTP API: authenticates, limits, translates; it decides nothing
billing      accounts, the ledger of usage, invoices
ingest       files and datasets: checks them and prepares them for training
scheduler    jobs and the pool: admission, placement, leases, usage
trainer      the agent of a node: runs what the pool grants
eval         verdicts on trained models
registry     base models, versions and their stages
notifier     webhooks
"""
