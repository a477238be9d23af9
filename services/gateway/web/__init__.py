"""HTTP that all subjects share.

* `edge`: the outermost layer: request ids, keys, size of bodies, metrics
* `deps`: what routes are given, and who asks
* `bodies`, `responses`: what requests and answers have in common; pages of a list
* `errors`, `problems`: codes and statuses; whatever is raised below a route as an answer
* `wording`: the words of codes
* `scopes`: what a key may do
* `token_bucket`, `rate_limits`: requests a minute, as arithmetic and in Valkey
* `pages`: lists by cursor
* `commands`, `outcomes`: send a command, wait for its decision
* `storage`, `timeouts`: answers within a limit of time
* `metrics`, `server`: figures for Prometheus, uvicorn as a host
"""
