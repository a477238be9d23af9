"""Tells tenants' endpoints what happened, signed, for up to three days.

app         the composition root
project     the to-do list of open deliveries, and versions of secrets
effect      one delivery
metrics     what it counts
domain      message, schedule of retries, allowed URLs
ports       what it needs of the network
adapters    HTTP
settings    what an operator may set
"""
