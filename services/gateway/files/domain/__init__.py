"""Pure code of `files`: no I/O, no HTTP, no clock."""
