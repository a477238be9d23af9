"""What a node should be doing: `state` (its leases), `evolve` (one event more)."""
