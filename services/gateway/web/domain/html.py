"""Common parts of HTML pages. They are read with a browser, and hold text of tenants."""

from typing import Final

#: no scripts, no requests: a page that a tenant's text could not turn into anything else
SECURITY: Final = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
    "x-content-type-options": "nosniff",
}
