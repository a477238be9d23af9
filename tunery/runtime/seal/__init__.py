"""Sealed fields: texts on the log, which is kept for ever, that are erased by destroying a key.

abstract     the port of the key store
memory       for tests and the simulator
directory    keys as files of one folder
absent       for services that open and seal nothing
sealer       seals text, and derives other secrets
boxes        seals bytes to the public key of one reader
webhooks     signing secrets of webhook endpoints
"""
