"""What a check reports about a file or one of its rows."""
