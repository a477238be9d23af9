"""The playground: one question, two models, both answers as they are written.

page   the form, and both answers as one stream
items  answers that are kept as rows for evaluation
"""
