"""Owns tenants, API keys, webhook endpoints and invoices: the stream `account`.

app         the composition root
domain      decides and folds `account`
project     ledger, tenants, statements and adjustments as rows
reports     views of them for readers
react       limits for `job`
figures     metrics: states as gauges
effect      closes a month
giving      gives leases the keys that their work needs
ports       what closing a month needs besides the log
adapters    the ledger in PostgreSQL, price books in files
settings    what an operator may set
prices      price books, one file for each version
"""
