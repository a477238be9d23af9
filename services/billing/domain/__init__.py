"""The rules of accounts and money: pure, without clock and I/O.

state         tenants, keys, endpoints, open deliveries
decide        commands to events
evolve        events to state
plans         plans over time, and suspension
statements    months that are closed
prepaid       credits that were bought in advance
"""
