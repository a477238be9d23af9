"""Owns tenants, API keys, webhook endpoints and invoices: the stream `account`."""
