"""Usage, budgets and invoices.

page: this month by day, model and key; an invoice with its lines; a job's lines with their events.
"""
