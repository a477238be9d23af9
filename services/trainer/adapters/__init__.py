"""The machine itself: `hardware` (what it offers), `processes` (process groups on Linux)."""
