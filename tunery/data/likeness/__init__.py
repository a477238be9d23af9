"""Which rows are equal, nearly equal, or belong together."""
