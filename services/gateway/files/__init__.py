"""Files, uploads in parts, and named datasets."""
