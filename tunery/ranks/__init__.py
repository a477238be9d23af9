"""Processes that share one training, its ranks, as their parent sees them.

Their parent starts each one, as torch's elastic agent does: their environment says who
they are and where they meet, follows them, and ends them together. It does not start one again:
attempts and checkpoints do that.
"""
