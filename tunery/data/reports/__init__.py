"""The report of a check, the statistics in it, and how it is shown.

report             `CheckReport`, as a value and as JSON
quality            statistics and findings about the rows of a file taken together
token_statistics   token counts of checked rows, and findings that need a base model
packing_plans      how many packed rows the usual lengths and splits will give
terminal           a report for a terminal
html_page          a report as one HTML page
"""
