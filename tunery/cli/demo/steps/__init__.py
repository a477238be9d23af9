"""The steps of the demo: `submission`, `training`, `results` and `serving`."""
