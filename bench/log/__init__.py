"""Parts of `bench.core`: the event core beside the bare client.

appends     journal records, one after the other and with a window in flight
owners      the single writer of a partition
replays     reading a journal again
ledger      usage slices into the ledger
jobs        lives of jobs as commands, and their journal
"""
