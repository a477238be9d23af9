"""The domain of ingest: files, their validation, and the prepared datasets that jobs train on.

state      the state of each tenant
decide     commands to events
uploads    the part of `decide` about uploads
evolve     events to the next state
erasure    the part of `decide` and `evolve` about tenants that are erased
quotas     bytes, files and uploads that a tenant may keep at a time
versions   versions of named datasets
expiry     files and uploads that expire
"""
