"""Pure code of `batches`: no I/O, no HTTP, no clock."""
