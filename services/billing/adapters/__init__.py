"""Implementations of billing's ports.

ledger    reads the ledger, and makes bills of it
usage     what of the ledger is on one bill
prices    price books from files
"""
