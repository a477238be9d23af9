"""Rows that are equal, nearly equal, or belong together."""
