"""Sweeps: many configurations of a job under one budget.

page: the list, and a sweep with its trials.
"""
