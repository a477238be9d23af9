"""Read models.

* `table`: a table declared once, by the fields of its row
* `reading`: queries, as typed rows
"""
