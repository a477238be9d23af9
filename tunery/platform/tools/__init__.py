"""Tools for topics of ours."""
