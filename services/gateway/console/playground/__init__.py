"""The playground: one question, two models, both answers as they are written.

page   the form, both answers as one stream, and answers that are kept as rows for evaluation
"""
