"""Pure code of `billing`: no I/O, no HTTP, no clock."""
