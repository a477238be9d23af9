"""Tools for streams and journals: trial, verification, inspection, archives.

trial         tries a stream on a log in memory
verify        rebuilds states from offset 0
inspection    looks at records, and says whether they count
archive       journals as files
audit_chain   verifies the records of the audit topic
"""
