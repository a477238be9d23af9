"""Who did what, from where, with which result.

* `observing`: which requests are noted, and what of them
* `refused_senders`: commands on the log whose sender may not send them
* `writing`: entries become records of the log, each with the hash of the one before
* `tables`, `rows`: records as rows; `responses`, `routes`: `/v1/audit`
"""
