"""The services: one folder per process, each with a README."""
