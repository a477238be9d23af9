"""Pure code of `imports`: no I/O, no HTTP, no clock."""
