"""Messages between Tunery's services, and the nouns in them. Pure, no I/O.

envelope    the frame around every command and every journal record
levels      feature levels of the log: what a release writes only once all can read it
records     records that are made of others with the same fields
reasons     codes of the reasons on the logs
errors      codes that a caller of the API may rely on
sealed      fields that must be erasable although the log is eternal
units       integer units: milliseconds, GPU-milliseconds, tokens, millionths
ids         how identifiers look and how the deterministic ones are derived
account     stream `account`: tenants, plans, API keys, webhooks
endpoints   of `account`: terms of webhook endpoints, confirmed addresses
integrations of `account` and `job`: tracking servers, tools that figures are written for
keys        nouns of `account`: API keys
billing     nouns of `account`: terms of bills, adjustments, closed months, credit notes
answers     of `account`: tokens of answers
imports     of `account`: accounts of other services that are read
batch       of `account`: files of questions that are answered at low priority
erasure     of `account`, `job`, `dataset`, `model`: the end of a tenant and of what it wrote
prepaid     of `account`: credits that were bought in advance
dataset     stream `dataset`: files, uploads, validation, prepared caches
storage     nouns of `dataset`: terms of files and uploads, quotas
job         stream `job`: quota, budget holds, jobs, attempts
anomaly     of `job`: what is unusual about a running attempt
admission   of `job`: suspension and monthly budgets
sweep       of `job`: sweeps, their jobs and rungs
serving     of `job`: serving pools, and the terms of their replicas
submission  nouns of `job`: what is asked for at a submission, and what it is estimated to need
pool        stream `pool`: leases, the waiting queue, usage
works       of `pool`: what placements refer to
node        of `pool`: how nodes join, leave, are seen, and are cordoned
enrolment   of `pool`: how a node gets its keys with a token that is used once
lease_keys  of `pool`: how the agent of a lease gets the keys that its work needs
model       stream `model`: base models, adapter versions, stages
gate        of `model`: policies of the gate, quarantine by people
benchmark   of `model`, `job`, `pool`: benchmarks that the gate asks
deployments of `model`: which versions answer in a stage
lifetime    of `model`: what keeps a version, its return, its erasure
training    nouns of training and evaluation that `job`, `pool` and `model` share
session     stream `session`: commands of a training loop that runs at the client
senders     which service may send which commands
access      which service may use what besides the log
audit       the topic of who did what over HTTP
assignments topic of what nodes are to do
telemetry   topics that are not journals: steps, log lines, heartbeats
streams     topics and streams as types, names of principals
topics      the one catalogue of topics, made of the streams above
"""
