"""Finds anomalies of trainings in their telemetry, with Faust; approximate, never for money.

app         the composition root
host        runs the stream processor, and looks for silence
processor   the application of Faust: its topic, its table and its settings
watching    what is kept of jobs, and what is sent of it
domain      what is unusual about a job
metrics     what it counts
settings    what an operator may set
"""
