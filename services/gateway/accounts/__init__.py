"""Tenants, API keys, budgets, webhook endpoints.

* `auth`: which key a request is sent with
* `tenant_routes`, `erasure_routes`, `price_routes`: what operators manage
* `key_routes`, `budget_routes`, `webhook_routes`: what tenants manage
* `integration_routes`: the MLflow server of a tenant
* `bodies`, `responses`: bodies of requests and of responses
* `tables`, `projection`: the journal `account` as rows; `budget_projection`: budgets of `job`
* `prices`: price books on the log
* `request_quotas`: how many requests a tenant may send, and journals keep
* `deps`: whose jobs or bills a request is about, and under which limits
"""
