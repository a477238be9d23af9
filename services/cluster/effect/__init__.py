"""Effects of the cluster's agent: leases, and what an earlier agent left."""
