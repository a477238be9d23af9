"""All jobs: filter, search, cancel many.

page: the table; cancels marked jobs.
"""
