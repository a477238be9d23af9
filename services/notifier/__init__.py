"""Delivers signed events to tenants' endpoints, for up to three days; writes jobs to MLflow."""
