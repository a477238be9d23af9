"""Implementations of the notifier's ports.

http    posts webhooks to checked addresses
smtp    hands e-mail to a mail server
"""
