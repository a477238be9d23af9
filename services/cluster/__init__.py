"""The agent of a cluster: one node of the pool, whose leases are JobSets that Kueue admits."""
