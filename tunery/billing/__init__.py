"""Invoices as pure functions of usage, prices and terms: what billing closes and others show.

* `periods`: calendar months, and which part of the ledger is on a bill
* `books`: price books on the log: which may be imported, and which is the newest
* `currency`: minor units, and the one rounding to what can be paid
* `lines`: usage and credits as lines, with their overage; one cumulative rounding for each job
* `volume`: what volume tiers of price books take off a month
* `storage`: what a tenant keeps, and what a month of it costs
* `answers`: what tokens of answers cost
* `contract`: discounts, overage and minimum commitments of a month, as lines
* `invoice`: totals and adjustments of a bill
* `cells`: cells of CSV files
"""
