"""The process that trains, scores or answers, as its caller sees it: a typed port without tensors.

The node agent writes a spec, starts the process, and reads events from its standard output, one
JSON object a line; `tunery.ml` is the other side. Both use the records of this package.

* `spec`: what a training or scoring process is given
* `events`: what it says while it runs
* `exits`: how it ends: exit codes, and failures with a cause and advice
* `questions`: what it asks of models that score, and what it is told
* `scores`: the results file of a scoring process
* `software`: what a training is computed with: versions and hashes
* `warm`: which piece of work a process that waits becomes
* `engine`: questions to an engine, and what it says
* `replica`: the process of a replica: what it is given and asks its agent for, where it answers
* `answers`: answers in tokens, as the engine orders them from a process
* `artifact`: what a training may leave: names, settings and headers of files
* `foreign_adapters`: what is taken of an adapter that was trained elsewhere
* `codec`: specs and events to bytes and back
"""
