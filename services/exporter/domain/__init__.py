"""What is in an export. Pure.

accounts   price books and closed months, folded from `account`
focus      use and credits as rows of FOCUS 1.2
invoices   adjustments, rounding, taxes and credit notes as rows
ranges     ranges of a journal, and the names of their files
"""
