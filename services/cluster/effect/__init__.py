"""Effects of the cluster's agent: run leases, and clean up objects of earlier agents."""
