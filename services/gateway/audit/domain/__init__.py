"""Pure code of `audit`: no I/O, no HTTP, no clock."""
