"""Answers questions with base models and versions of tenants, on this machine.

* `app`: composition root; `settings`: what an operator may set; `ports`: engine and weights
* `host`: takes questions over a local socket
* `meter`, `counting`: tokens of answers, on disk first and then on the log
* `loaded_models`: which models are in memory
* `reconciling`: what servers have in memory, against what is wanted
* `replica`: the process of a replica, under a lease of a node
* `adapters`: llama.cpp, PEFT, vLLM and SGLang, and the files that they read
"""
