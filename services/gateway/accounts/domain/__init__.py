"""Pure code of `accounts`: no I/O, no HTTP, no clock."""
