"""Formats of files.

files     CSV and Parquet
prices    price books from files
"""
