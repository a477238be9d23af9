"""Sessions: the routes that the Tinker SDK calls, over leases of the pool, and those for people."""
