"""HTTP that all subjects share."""
