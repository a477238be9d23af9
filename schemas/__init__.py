"""What Tunery's services say to each other: the only vocabulary they share. Pure, no I/O.

envelope     the frame around every command and every journal record
topics       the catalogue of topics: key, retention, writer, readers
account      stream `account`: tenants, plans, API keys, webhooks
dataset      stream `dataset`: files, their validation, prepared caches
job          stream `job`: quota, budget holds, jobs, attempts
model        stream `model`: base models, adapter versions, stages
pool         stream `pool`: nodes, slots, leases, the waiting queue, usage
training     nouns of training and evaluation that several streams use
telemetry    topics that are not journals: metrics, log lines, heartbeats
errors       stable error codes
ids          identifiers, and how the deterministic ones are derived
sealed       fields that can be erased although the log is eternal
units        integer units of money, time and tokens
"""
