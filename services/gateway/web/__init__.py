"""HTTP that all subjects share: admission of requests, errors, pages, limits, commands.

edge: the outermost layer · deps: what routes are given · problems: errors as answers ·
errors: codes and statuses · scopes: what a key may do · token_bucket, rate_limits: requests a
minute · pages: lists by cursor · commands, outcomes: send a command and wait for its decision ·
storage, timeouts: answers in time · responses: answers as classes, pages of them · health: for
operators · metrics · server: uvicorn as a host · wording: the words of codes.
"""
