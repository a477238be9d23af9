"""The adapters of ingest, which process rows in worker processes."""
