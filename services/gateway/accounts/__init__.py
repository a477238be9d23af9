"""Tenants, API keys, webhook endpoints.

* `auth`: which key a request is sent with
* `tenant_routes`, `key_routes`, `webhook_routes`: what operators and tenants manage
* `bodies`, `responses`: bodies of requests and of responses
* `tables`, `projection`: the journal `account` as rows
* `prices`: price books on the log
"""
