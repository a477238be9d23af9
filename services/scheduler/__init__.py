"""Decides `job` and `pool`: who may run, and on which slots.

domain/    the two deciders with their folds, and which nodes are alive
app        the only file that names concrete parts
react      what follows elsewhere from the journals of `job` and `pool`
enrolling  gives a node that was enrolled its keys
figures    metrics: states as gauges, decisions as counters
watch      reads heartbeats and tells the pools what it has seen
settings   settings of the process
"""
