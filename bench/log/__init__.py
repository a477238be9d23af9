"""Parts of `bench.core`.

jobs: a journal of jobs, made by the real decider
appends, replays, owners, ledger, tracing: what is measured on it
drivers: appends and decisions over each client of Kafka
accounts: the broker of a stack compared with an open one
"""
