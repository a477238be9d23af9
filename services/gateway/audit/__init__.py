"""The audit log: principal, action, address and result of each request."""
