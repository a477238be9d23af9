"""State of a node: its leases, and which rank of a training the others wait for."""
