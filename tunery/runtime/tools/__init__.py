"""Tools for streams and journals: trial, verification, inspection, archives."""
