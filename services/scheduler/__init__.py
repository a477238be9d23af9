"""Decides `job` and `pool`: who may run, and on which slots."""
