"""Sealed fields: text on the eternal log that can still be erased, by destroying a key."""
