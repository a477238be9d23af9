"""Sealed fields: text on the eternal log that can still be erased, by destroying a key.

abstract     the port of the key store
memory       for tests and the simulator
directory    keys as files of one folder
sealer       seals text, and derives other secrets
webhooks     signing secrets of webhook endpoints
"""
