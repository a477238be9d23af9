"""Views and to-do lists: what a service keeps in PostgreSQL and can build again from the log.

abstract      the port: projections, positions, to-do rows, results of commands
memory        for tests and the simulator
postgres      one schema for each service, one transaction for each batch
statements    the runtime's tables, and the statements on them
reports       views that people may read
roles         a role for each service that keeps rows, as SQL
absent        for services that keep no rows
rows          rows as JSON on their way to PostgreSQL
changes       the net effect of a batch's changes
listening     LISTEN, on a connection that comes back
"""
