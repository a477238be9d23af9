"""Anomalies in windows of time. Pure.

peers       which node is slower than others of its type
watch       what is kept of a job, and what a message of telemetry changes and shows
"""
