"""Blobs on S3, encrypted with tenants' keys."""
