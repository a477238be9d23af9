"""Implementations of billing's ports.

ledger    reads the ledger, and makes bills of it
prices    price books from files
"""
