"""The service that validates files and prepares datasets. See README.md.

settings   its settings
app        composition root
domain     decisions and state of the stream "dataset"
project    events to the to-do list
effect     validate, prepare, erase
react      events to commands for jobs
ports      what the effects need: work on rows
adapters   that work, in worker processes
scratch    folders for files that are being processed
"""
