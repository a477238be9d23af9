"""Tenants, API keys, webhook endpoints.

auth: who asks · tenant_routes, key_routes, webhook_routes: `/v1/tenants`, `/v1/keys`,
`/v1/webhook_endpoints` · responses: objects of the API · documents: the API's document ·
projection: the journal `account` into rows · prices: price books.
"""
