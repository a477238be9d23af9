"""What finance uses: use of GPU time, statements of jobs.

* `usage_routes`, `usage`: use of a tenant in buckets of time, grouped
* `statement_routes`: each slice and credit of a job with the event it comes from
* `deps`: whose bills a request is about
* `responses`: responses
"""
