"""Tools for journals: verification, inspection, archives.

verify        rebuilds states from offset 0
inspection    looks at records, and says whether they count
archive       journals as files
"""
