"""Imports published benchmarks, from files that the operator has, as benchmarks of the gate."""
