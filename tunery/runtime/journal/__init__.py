"""The event core: which records of a journal are accepted, and the state that follows from them.

acceptance    the rule by which records count; the only implementation
reader        reads a journal through the rule
history       the entries that journals have now, for who does not follow them
codec         bytes of commands, records and states
fold          what an owner knows: the fold of its journal
dedupe        commands sent twice are decided once
senders       who has sent a command, and whether it may
decision      from one command to one record
snapshots     folds as blobs, a shortcut for reading from zero
ports         what owners and reactors need of a process, and their limits
alarm         a partition that stopped: the log event and the metric
"""
