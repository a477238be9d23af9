"""Who may use what, who is told, what it costs."""
