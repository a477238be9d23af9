"""Pure code of `models`: no I/O, no HTTP, no clock."""
