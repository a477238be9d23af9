"""The rules of accounts and money: pure, without clock and I/O.

state         tenants, keys, endpoints, open deliveries
decide        commands to events
evolve        events to state
statements    months that are closed
"""
