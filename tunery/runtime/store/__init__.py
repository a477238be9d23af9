"""Views and to-do lists: what a service keeps in PostgreSQL and can build again from the log."""
