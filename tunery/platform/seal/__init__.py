"""Sealed fields: texts on the log, which is kept for ever, that are erased by destroying a key."""
