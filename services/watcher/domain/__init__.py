"""Anomalies in windows of time. Pure."""
