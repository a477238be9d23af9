"""HTTP that all subjects share.

* `edge`: the outermost layer: request ids, keys, size of bodies, metrics
* `lingering`: answers reach clients that are still sending
* `routing`: routers, with what all routes document
* `deps`: dependencies of all routes, and the caller
* `bodies`, `responses`: types that bodies and responses share; pages of a list
* `errors`, `problems`: codes and statuses; turns exceptions into error responses
* `wording`, `refusals`: sentences for codes
* `scopes`: what a key may do
* `token_bucket`, `rate_limits`: requests a minute, as arithmetic and in Valkey
* `wrong_keys`: requests without a valid key; `connections`: how many may be open
* `pages`: lists by cursor; `html`: headers of pages for people
* `streams`: server-sent events
* `commands`, `command_results`: send a command, wait for its decision
* `shown_names`: names of models in answers
* `storage`, `timeouts`: time limits
* `metrics`, `server`: figures for Prometheus, uvicorn as a host
"""
