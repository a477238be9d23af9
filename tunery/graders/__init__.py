"""OpenAI's graders: score an answer by a declaration. Pure; code of tenants is never run.

Time and memory of a grade are bounded: texts, formulas, paths and nesting have limits here.
"""
