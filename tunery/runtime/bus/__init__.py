"""The log: partitioned, ordered, append-only. One port, one real and one in-memory adapter."""
