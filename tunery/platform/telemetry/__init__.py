"""Metrics of a process on an operator's machines."""
