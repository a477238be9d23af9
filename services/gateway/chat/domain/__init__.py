"""Pure code of `chat`: no I/O, no HTTP, no clock."""
