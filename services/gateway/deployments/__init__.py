"""Versions that answer in a stage: `/v1/models/{id}/deploy` and `/v1/deployments`."""
