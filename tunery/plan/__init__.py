"""What a job will need and cost, and when it will run: pure arithmetic, integers out.

* `knobs`: every hyper-parameter of a request: range, default and its source
* `hyperparameters`: what is wrong with a request, and the rules that resolve "auto"
* `methods`: the methods that a job may train with, and the rows that each learns from
* `micro_batches`: how a step's rows are divided to fit into memory
* `fitting`: how a step is made to fit one device, and why
* `packing`: packed rows and optimizer steps of an epoch
* `durations`: how long work takes, by what has ended and by the progress of what runs
* `time`: how long training and evaluation take, and the GPU time held for them
* `spot`: when work may run on machines that may be taken away
* `memory`: peak memory of one training slot
* `exchange`: what ranks tell each other in a step, and how long that takes
* `price`: price books, and what GPU time and trained tokens cost
* `limits`: why a job does not fit into what its tenant may use in a month
* `refunds`: what is given back, by class of failure
* `estimate`: all of these for one job
* `sweeps`: configurations of a sweep, and which of them go on
* `scheduling`: the planner of a pool, and why and until when a job waits; a folder
"""
