"""Contents of an export. Pure."""
