"""Exports use of GPU time from the log to object storage, as files for finance.

app         the composition root
host        reads the journal of `pool` and writes files, range after range
domain      charges in the columns of FOCUS 1.2, and the names of files
adapters    files as CSV and Parquet
settings    what an operator may set
"""
