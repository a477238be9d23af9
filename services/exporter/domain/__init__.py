"""What is in an export. Pure."""
