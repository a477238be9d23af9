"""Pure code of `deployments`: no I/O, no HTTP, no clock."""
