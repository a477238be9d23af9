"""Logs and metrics of a process.

logs       structured logs: events with fields, and the context of a job
metrics    every metric of the runtime
"""
