"""Formats of files.

files     CSV and Parquet
"""
