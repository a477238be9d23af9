"""Pure code of `jobs`: no I/O, no HTTP, no clock."""
