"""A seeded simulator for the production loops: virtual time, a faulty log, invariants."""
