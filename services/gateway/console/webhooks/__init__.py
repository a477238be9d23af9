"""Webhook endpoints and what was sent to them.

page: the list; an endpoint with its deliveries; send again, test, delete.
"""
