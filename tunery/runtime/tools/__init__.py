"""What people and tests do with a journal: verify it, look into it, keep it as a file."""
