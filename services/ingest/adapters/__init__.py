"""The adapters of ingest, which process rows in worker processes.

tasks               the messages between ingest and a worker process
process_workbench   `ProcessWorkbench`: runs tasks in worker processes
worker              the worker process
refusals            the rejection of a file, in OpenAI's terms
"""
