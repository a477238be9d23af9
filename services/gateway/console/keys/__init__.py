"""API keys of the tenant.

page: the list with its scopes; revoke one; an operator makes new ones.
"""
