"""Tells tenants' endpoints what happened, signed, for up to three days; writes jobs to MLflow.

app         the composition root
project     the to-do list of open deliveries, and versions of secrets
effect      one delivery
mirroring   one job that goes to a tenant's MLflow server
figures     steps of these jobs, from telemetry
metrics     what it counts
domain      message, job for MLflow, schedule of retries, allowed URLs
ports       what it needs of the network
adapters    HTTP
settings    what an operator may set
"""
