"""Read models: tables, and what fills and reads them. Nothing here knows HTTP."""
