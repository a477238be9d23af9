"""The console: pages over the public API, for people.

app       routes, safety headers, requests of other sites; scripts and styles by name and hash
visits    one request: its person, its calls, its page (layout.html, problem.html)
calls     the public API, called inside this process as over HTTP; a page lists its calls
sessions  a cookie that opens a stored key; one-time codes
macros.html  sections, tables and buttons of all pages; part.html: a part alone
words     how amounts, times and states read; templates
sign_in/  sign in with a key or a code, sign out
jobs/     all jobs: filter, search, cancel, compare
job/      one job, live: curve, why it waits and what would start it sooner, attempts, cost, gate,
          answers before and after, checkpoints, events
compare/  up to six jobs: curves, settings that differ, gate, cost
sweeps/   sweeps and their trials
loops/    sessions, whose loop runs at the client
models/   versions: lineage, stages, approval, roll-back, files
money/    usage, budgets, invoices, down to the event of a line
webhooks/  endpoints, deliveries, sending them again
keys/     API keys and their rights, approvals of promotions
operators/  a pool's queue and nodes, tenants
new_job/  a file with its report, settings with their estimate
playground/  one question to two models, and a blind vote
static/   styles and the script of our own

Each page has its routes, templates and calls in its folder.
"""
