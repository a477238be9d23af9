"""Exports use of GPU time and what is on invoices to object storage, as files for finance.

app             the composition root
host            follows the journals of `pool` and `account`
journal_export  writes one journal as files, range after range
domain          charges in the columns of FOCUS 1.2, and the names of files
adapters        files as CSV and Parquet
settings        what an operator may set
"""
