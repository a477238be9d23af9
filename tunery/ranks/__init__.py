"""Processes that share one training, its ranks, as their parent sees them.

A rank opens nothing to meet the others: its parent gives it memory that all share, and a connection
to each other one, as descriptors that are open when it starts. So it may be confined as a process
that trains alone. torch's own launcher is not used: it restarts ranks, which attempts and
checkpoints do here, and its ranks need a network.

* `joining`: what they are given
* `group`: all of them as one process: its events, signals and end
* `carrying`: what stands for those on other machines

`tunery.ml.rank_processes` is the process of a rank, and `tunery.ml.exchange` how it uses that.
"""
