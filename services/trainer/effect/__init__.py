"""What the agent does.

* `agent`: makes the machine agree with the pool's journal
* `attempt`: one lease from its grant to the report that its slots are free; `environment`: what its
  process gets to know; `error_lines`: what a log may say of its standard error
* `program`: the outline of what runs under a lease; `training`, `evaluation` and `serving` fill it
  in
* `gang`: the member of a lease with several nodes; `gang_leading`: the first one; `gang_following`:
  the others; `gang_link`: a connection between two agents; `process_end`: how work ended
* `lease_certificates`: certificates of one lease
* `replica_relay`: where gateways reach a replica; `replica_files`: files of adapters for it;
  `replica_answers`: the tokens that it counts
* `scores`: asks models for the scores of a process that grades answers
* `judging`: asks a judge of the operator which of two answers is better
* `guarding`: asks a guard model of the operator which answers harm, and which refuse
* `lease_keys`: what opens and seals what a lease works with, which its node has no keys for
* `storage`: blobs of an attempt; `reports`: commands to the pool, telemetry, heartbeats
"""
