"""What runs as long as its process.

`abstract` is the port of a host. `process` is the life of a process, and `keeping` keeps each of
its hosts running. `aggregate` runs an `owner` for each partition of a stream, `reactor` turns
events into commands, `projector` keeps rows, `effects` does what is on to-do lists; `membership`
gives owners and reactors their partitions, `digests` keeps hashes of states to compare with.
"""
