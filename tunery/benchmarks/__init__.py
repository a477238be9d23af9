"""Benchmarks that the gate asks besides its bundled questions: files, known by hash."""
