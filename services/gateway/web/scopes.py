"""What a key may do: `read` and `write` everywhere, or in one kind of resource (`files.read`)."""

from typing import Final, Literal, TypeAlias, get_args

Scope: TypeAlias = Literal[
    "read",
    "write",
    "files.read",
    "files.write",
    "jobs.read",
    "jobs.write",
    "models.read",
    "models.write",
    "webhooks.read",
    "webhooks.write",
    "keys.read",
    "keys.write",
    "admin",
]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
#: the segment after /v1 → what the path is about
RESOURCES: Final = {
    "files": "files",
    "uploads": "files",
    "datasets": "files",
    "fine_tuning": "jobs",
    "jobs": "jobs",
    "models": "models",
    "bases": "models",
    "webhook_endpoints": "webhooks",
    "webhook_event_types": "webhooks",
    "keys": "keys",
}
READING: Final = frozenset({"GET", "HEAD"})
ASKING: Final = ("/estimate", "/preview")  # POST for the sake of a body: nothing is recorded


def scope_of(method: str, path: str) -> str:
    """The scope of a request, RESOURCE.ACTION; the bare action where no resource is known."""
    action = "read" if method in READING or path.endswith(ASKING) else "write"
    resource = RESOURCES.get(path.removeprefix("/v1/").partition("/")[0])
    return action if resource is None else f"{resource}.{action}"


def allows(scopes: frozenset[str], needed: str) -> bool:
    """`needed` itself, or its action without the resource."""
    return needed in scopes or needed.rpartition(".")[2] in scopes
