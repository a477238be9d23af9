"""Sealed fields: texts on the log, which is kept for ever, that are erased by destroying a key.

abstract     the ports of the key store and of root keys
memory       for tests and the simulator
directory    keys as files of one folder
key_files    what is in such a file: versions of a key, wrapped by a root key
roots        the root keys of an installation, by name
file_root    a root key in a file
vault_root   a root key of Vault's transit engine
wrapping     wraps the keys of many tenants anew
files        small secret files, written whole, and the lock of their folder
absent       for services that open and seal nothing
sealer       seals text, and derives other secrets
model_names  names of models, whose suffix the log has sealed
handed       the keys of one lease, for an agent without a key store
boxes        seals bytes to the public key of one reader
webhooks     signing secrets of webhook endpoints
"""
