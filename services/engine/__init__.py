"""Answers questions with base models and versions of tenants, on this machine."""
