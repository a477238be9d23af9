"""Exports use of GPU time and what is on invoices to object storage, as files for finance."""
