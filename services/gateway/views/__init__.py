"""Read models. table: a table declared once · reading: queries, as typed rows."""
