"""A new job: upload, the report on the file, settings with their estimate.

page  each step of the form as a call; the same submission for curl, Python and the command line
"""
