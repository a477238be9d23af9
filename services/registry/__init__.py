"""Base models, the versions made of them, and which of these are in use."""
