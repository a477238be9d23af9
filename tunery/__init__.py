"""What the services stand on, and what people use.

runtime      log, journal, hosts of the five verbs, stores, blobs, sealed fields
work         the process that trains or scores, as a typed port
plan         what a job will need and cost, before it runs
data         reading, checking, rendering and packing of training data
ml           training and scoring with tensors
local        the servers and services of one machine
client       the API from Python
cli          the command line
"""
