"""What a webhook says, and where it may go."""
