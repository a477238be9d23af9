"""State of a node: its leases, commands of sessions, and the rank that the others wait for."""
