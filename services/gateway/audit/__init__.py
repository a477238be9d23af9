"""Who did what, from where, with which result."""
