"""The key of a stack's tenant: programs use it, and the operator's key stays with the operator."""

import json
import os

from tunery.local import secrets
from tunery.local.paths import DataDir
from tunery.local.settings import TENANT


def tenant_key(folders: DataDir, base_url: str) -> str:
    """Return a key of the stack's tenant with the scopes `read` and `write`.

    The first call makes the key over the API and keeps it beside the stack's other secrets; a
    revoked one is replaced. Raises Unreachable or ApiRefusal.
    """
    from tunery.client import Api

    file = folders.secrets.with_name("tenant-key.json")
    with Api(base_url, secrets.load(folders.secrets).admin_key) as api:
        if file.exists():
            kept: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
            valid = {key["id"] for key in api.keys(TENANT) if key["revoked_at"] is None}
            if kept["id"] in valid:
                return kept["key"]
        made = api.create_key(TENANT, {"name": "tunery up", "scopes": ["read", "write"]})
    part = file.with_suffix(".part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        json.dump({"id": made["id"], "key": made["key"]}, stream)
    part.replace(file)
    return made["key"]
