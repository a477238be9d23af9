"""Parts of `bench.core`.

jobs: a journal of jobs, made by the real decider
appends, replays, owners, ledger, tracing: what is measured on it
accounts: the broker of a stack beside an open one
"""
