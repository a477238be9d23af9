"""The log: partitioned, ordered, append-only. One port, and in memory."""
