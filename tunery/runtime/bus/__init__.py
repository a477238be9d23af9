"""The log: partitioned, ordered, append-only. One port, one real and one in-memory adapter.

abstract            the port: writers, readers, groups, and their errors
memory              for tests and the simulator
kafka               on Apache Kafka, with aiokafka
kafka_membership    consumer groups that only assign
kafka_producer      appends
kafka_accounts      passwords and access control lists of principals
grants              who may do what, computed from the catalogue of topics
preparation         topics and rights on a Kafka of an operator's own
kafka_reader        reads, over one client that all readers of a process share
reading             one record of a partition, or all that it has now
partitioner         key to partition, as Java clients do it
sender              commands to streams, from outside their owners
signing             keys of senders, and the proof that a record carries of its sender
quiet               keeps outages from flooding the log of the process
"""
