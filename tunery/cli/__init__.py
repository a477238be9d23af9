"""What people type. One module a command; `main` finds them."""
