"""A job as other tools show it: what the command line and the services write, and where."""
