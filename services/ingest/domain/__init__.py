"""The domain of ingest: files, their validation, and the prepared datasets that jobs train on."""
