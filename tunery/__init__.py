"""The packages below the services, and the command line and the client."""
