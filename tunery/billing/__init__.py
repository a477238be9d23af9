"""Invoices as pure functions of usage, prices and terms: what billing closes and others show."""
