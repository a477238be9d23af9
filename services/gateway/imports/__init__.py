"""Imports of accounts of other services."""
