"""The shapes that a row may have, and the rules of each."""
