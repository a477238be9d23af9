"""Blobs: immutable, content-named bytes outside the log.

abstract    the port, and its errors
memory      for tests and the simulator
s3          object storage over S3
encrypted   above another one: content of tenants as ciphertext
frames      the bytes of an encrypted blob
path_keys   keys of such blobs, made from data keys or handed over
files       hashes of files
writing     streams of bytes out of a file, and into one, complete or not at all
base_files  the files of a base model that determine its results, and their hash
"""
