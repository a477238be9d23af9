"""The HTTP API: authenticates, limits and translates requests. It decides nothing."""
