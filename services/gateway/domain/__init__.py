"""What the API says and understands. Pure."""
