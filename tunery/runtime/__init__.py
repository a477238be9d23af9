"""The runtime of every service: the log, the store, blobs, keys, and the hosts that use them.

verbs                  decide, evolve, react, project and effect as types
ports                  the ports that a service is given
connections            opens the real ones, and waits for servers that are not up yet
confining              which walls are around processes that read tenants' files
confined_workers       processes that read tenants' files, forked or started anew
memory_servers         the same in memory, for tests and the simulator
node_settings          what an operator gives a new node, sealed with its token
settings               where a process finds its servers
kafka_login            how a process proves to Kafka who it is
clock, ids, backoff    time, fresh ids and retries, as ports
bus                    the log: Kafka, or memory
blobs                  object storage: S3, or memory
object_policies        who may do what in object storage, as policies of S3
store                  rows and positions: PostgreSQL, or memory
chat_endpoint          an endpoint of OpenAI's form that an operator names
fair_places            places that tenants share, in turn
resting                rests of a tenant's work while others have some
local_socket           sockets that only their owner can open
answer_files           tokens of answers that are not on the log yet
seal                   sealed fields and tenants' keys
journal                the acceptance rule, and how journals are read and folded
hosts                  what runs as long as its process
tasks                  long-lived tasks: run apart, end together, stop within a limit
watchdog               finds loops that make no progress
loop_watch             ends a process whose event loop is blocked
health                 which hosts of the process do not run
tools                  verify, inspect and archive journals
telemetry              logs and metrics
"""
