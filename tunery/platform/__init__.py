"""Drivers of a service: Kafka, PostgreSQL, S3, keys, settings. The event core is `runtime`."""
