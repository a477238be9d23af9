"""Rows and an admin client for the gateway's integration tests."""

import httpx

from tunery.local.stack import Stack

SERVICES = ("gateway", "ingest", "registry", "billing", "scheduler", "notifier")
ROWS = [
    {
        "messages": [
            {"role": "user", "content": f"What is {n} plus {n}?"},
            {"role": "assistant", "content": f"It is {2 * n}."},
        ]
    }
    for n in range(40)
]


def admin(control_plane: Stack) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=control_plane.api_url,
        headers={"authorization": f"Bearer {control_plane.admin_key}"},
        timeout=120,
    )
