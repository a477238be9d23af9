"""Tenants, API keys, webhook endpoints.

* `auth`: who asks
* `tenant_routes`, `key_routes`, `webhook_routes`: what operators and tenants manage
* `bodies`, `responses`: requests and answers
* `tables`, `projection`: the journal `account` as rows
* `prices`: price books
"""
