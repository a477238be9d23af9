"""Tenants, API keys, budgets, webhook endpoints."""
