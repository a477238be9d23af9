"""For operators: the queue, the nodes and the tenants.

page: what is decided next, what holds the slots, and what takes nodes out of service.
"""
