"""What an answer to a tenant's own row is worth: measures by name, patterns, graders. Pure.

The numbers are those of the libraries that are named; tests hold theirs. Patterns are RE2's, whose
time grows with the text and never with the pattern's branches.
"""
