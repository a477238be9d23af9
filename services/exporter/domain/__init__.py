"""What is in an export. Pure.

accounts   price books, closed months and subscriptions, folded from `account`
feed       use as events for webhooks
focus      use and credits as rows of FOCUS 1.2
invoices   adjustments, rounding, taxes and credit notes as rows
ranges     ranges of a journal, and the names of their files
"""
