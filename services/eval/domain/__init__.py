"""Pure functions of scores: the verdict, what supports it, and what to change."""
