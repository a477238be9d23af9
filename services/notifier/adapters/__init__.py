"""Implementations of the notifier's ports.

http    posts webhooks to checked addresses
"""
