"""What a check reports about a file or one of its rows.

codes     the catalogue of finding codes: what each means and how to fix it
finding   one finding, and the collector that counts all of them and lists some
limits    every limit on the input of a tenant, by name
"""
