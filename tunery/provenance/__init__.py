"""What proves where a published version comes from: signed, and checked without a network."""
