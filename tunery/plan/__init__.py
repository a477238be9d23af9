"""What a job will need and cost, before it runs: pure arithmetic, integers out.

* `hyperparameters`: ranges of every hyper-parameter, and the rules that resolve "auto"
* `micro_batches`: how a step's rows are divided to fit into memory
* `packing`: packed rows and optimizer steps of an epoch
* `time`: how long training and evaluation take, and the GPU time held for them
* `memory`: peak memory of one training slot
* `price`: price books, and what GPU time and trained tokens cost
* `refunds`: what is given back, by class of failure
* `estimate`: all of these for one job
"""
