"""Tables of the read models, each with the row that it holds."""
