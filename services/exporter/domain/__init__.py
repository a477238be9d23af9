"""What is in an export. Pure.

focus    use and credits as rows of FOCUS 1.2
ranges   ranges of a journal, and the names of their files
"""
