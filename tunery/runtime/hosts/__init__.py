"""What runs as long as its process: owners of partitions, reactions, projections and effects.

abstract      the port `Host`
process       the life of a service's process
probes        health and metrics of a process over HTTP
keeping       keeps a host running: again after a failure or a hang
membership    one task for each partition that a group assigns
aggregate     hosts a decider: an owner for each partition
owner         the single writer of one partition
broker_time   timestamps of brokers, bounded by an owner's own clocks
decisions     what an owner says of its decisions
reactor       hosts a reaction: records of a journal become commands for other streams
projector     hosts a projection: records become rows
topic_reader  records of a topic that is no journal become rows
effects       hosts effects: to-do rows become I/O and commands
digests       hashes of owners' states, for `tunery replay --verify`
"""
