"""How a service lives.

`ports` is what a service is given; `connections` makes it from real servers and `memory_servers`
in memory. `bus` is the log, `journal` its rule of acceptance, `store` the tables, `blobs` object
storage, `seal` the sealed fields, `clock` the time, `ids` the identifiers, `settings` the
environment. `verbs` are the five kinds of work of a service, `hosts` run them as long as the
process lives. `tasks` runs long-lived tasks, `watchdog` finds those that make no progress,
`health` says which hosts do not run, `backoff` paces retries. `telemetry` holds logs and metrics,
`tools` are for operators.
"""
