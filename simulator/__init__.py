"""The seeded simulator: the production hosts on virtual time, under faults, with invariants.

`__main__.py`       the command line, `python -m simulator` or `make sim`
`engine/`           virtual time, a faulty log, store and object storage, and the search for seeds
`event_core/`       scenario: two small streams through owners, reactors, projectors and effects
`artifacts/`        scenario: ingest and registry with people who keep files and models, and jobs
`control_plane/`    scenario: scheduler and billing with tenants, nodes and failing machines
"""
