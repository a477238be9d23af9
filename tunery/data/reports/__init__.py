"""The report of a check, the statistics in it, and how it is shown."""
