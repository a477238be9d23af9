"""Replicas of serving pools on nodes: `/v1/serving_pools`, and who is asked.

* `routes`: create, change, list and show serving pools; `deployments.routes` removes them
* `bodies`, `responses`: requests and answers
* `replicas`: asks a replica, and another one where it is away
* `engine_connection`: a question and its answer over one connection
* `tables`, `projection`: events of `job` and `pool` → rows
"""
