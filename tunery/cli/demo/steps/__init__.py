"""The steps of the demo: `submission`, `training` and `results`."""
