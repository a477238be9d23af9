"""Pure code of `web`: no I/O, no HTTP, no clock."""
