"""Which versions answer in a stage: `/v1/models/{id}/deploy` and `/v1/deployments`.

* `routes`: deploy, list, show, end; removal of serving pools, which deployments may name
* `bodies`, `responses`: requests and answers
* `buckets`: who is answered by the second version, and whether the shares are as they should be
* `health`: what the engine says about a version
* `traffic`: what the versions of a deployment answer, counted and sent to the log
* `serving`: the versions that a name stands for
* `tables`, `projection`: events → rows
"""
