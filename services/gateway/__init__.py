"""The front door: authenticates, limits, translates. It decides nothing."""
