"""The rules of accounts and money: pure, without clock and I/O.

state         tenants, keys, endpoints, open deliveries
decide        commands to events
evolve        events to state
periods       calendar months, and which part of the ledger a bill has
plans         plans over time, and suspension
statements    months that are closed
invoice       lines, totals and adjustments of a bill
"""
