"""Models: all versions, and one with its lineage, stages and files.

page: the list, a version, and what changes its stage.
"""
