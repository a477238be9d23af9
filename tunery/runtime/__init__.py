"""The event core, as a library: journals, hosts and ports, without servers or streams of Tunery.

Of this repository it imports the frame alone: `envelope`, `streams`, `units`, `ids`, `sealed`,
`reasons` and `errors` of `schemas`. Drivers for Kafka, PostgreSQL and S3 are in `platform`.
"""
