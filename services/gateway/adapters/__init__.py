"""How the gateway reaches the world: PostgreSQL, the log, files, HTTP."""
