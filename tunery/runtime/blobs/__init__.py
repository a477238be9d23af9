"""Blobs: immutable, content-named bytes outside the log."""
