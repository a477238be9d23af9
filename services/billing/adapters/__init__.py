"""Implementations of billing's ports."""
