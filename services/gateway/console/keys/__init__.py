"""API keys of the tenant.

page: the list with its rights; revoke one; whose approvals count; an operator makes new ones.
"""
