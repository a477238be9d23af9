"""Decider of the stream `session`."""
