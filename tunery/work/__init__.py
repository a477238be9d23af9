"""The process that trains, scores or answers, as its caller sees it: a typed port without tensors.

The node agent writes a spec, starts the process, and reads events from its standard output, one
JSON object a line; `tunery.ml` is the other side. Both use the records of this package.
"""
