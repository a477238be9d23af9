"""Training data: read files, check rows, render them to tokens, split them and pack them.

Nothing here needs torch or a network. The same bytes in give the same bytes out.
"""
