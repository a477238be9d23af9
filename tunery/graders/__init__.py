"""OpenAI's graders: what an answer is worth, by a declaration. Pure; never code of tenants.

Time and memory of a grade are bounded: texts, formulas, paths and nesting have limits here.
"""
