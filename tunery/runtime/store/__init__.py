"""Views and to-do lists: what a service keeps and can build again from the log."""
