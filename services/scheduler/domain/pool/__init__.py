"""Stream `pool`: nodes, the waiting queue, leases and their use."""
