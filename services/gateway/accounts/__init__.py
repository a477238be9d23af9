"""Tenants, API keys, webhook endpoints.

auth: who asks · tenant_routes, key_routes, webhook_routes: `/v1/tenants`, `/v1/keys`,
`/v1/webhook_endpoints` · responses: answers of the API · tables, projection: the journal
`account` as rows · prices: price books.
"""
