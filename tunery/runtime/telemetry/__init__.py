"""Logs and metrics of a process.

logs          structured logs: events with fields, and the context of a job
trail         the request and the trace that work follows from
traces        spans of what follows from a request
otlp          sends them to an OTLP endpoint
catalogue     declares metrics: name, unit, labels, meaning
metrics       every metric of the runtime
certificates  when the certificates of a process end
figures       gauges that are read from states at each scrape
"""
