"""Implementations of the notifier's ports."""
