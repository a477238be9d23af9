"""Answers questions with base models and versions of tenants, on this machine.

* `app`: composition root; `settings`: what an operator may set; `ports`: engine and weights
* `host`: takes questions over a local socket
* `loaded_models`: which models are in memory
* `adapters`: llama.cpp, and the files that it reads
"""
