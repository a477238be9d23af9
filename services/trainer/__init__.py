"""The node agent: starts training and scoring processes under leases of the pool.

* `app`: composition root; `settings`: one node's settings; `ports`: hardware and processes
* `figures`: metrics of trainings and devices
* `adapters`: the real hardware and process groups
* `domain`: what a node should be doing, folded from the pool's journal
* `effect`: the agent, and what runs under one lease
"""
