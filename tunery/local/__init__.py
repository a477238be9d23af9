"""The servers and services of one machine."""
