"""Pure code of `serving_pools`: no I/O, no HTTP, no clock."""
