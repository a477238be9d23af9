"""The rules of accounts and money: pure, without clock and I/O.

state         tenants, keys, endpoints, open deliveries
decide        commands to events
evolve        events to state
endpoints     webhook endpoints, their confirmation, and which of them get a delivery
plans         plans over time, and suspension
statements    months that are closed
erasure       the end of a tenant, part by part
prepaid       credits that were bought in advance
"""
