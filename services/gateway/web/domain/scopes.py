"""Scopes of API keys: `read` and `write` for all resources, or for one, as `files.read`."""

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
    "chat.read",
    "chat.write",
    "webhooks.read",
    "webhooks.write",
    "keys.read",
    "keys.write",
    "budgets.read",
    "budgets.write",
    "billing.read",
    "admin",
]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
#: segment after /v1 → resource
RESOURCES: Final = {
    "files": "files",
    "uploads": "files",
    "datasets": "files",
    "storage": "files",
    "imports": "files",
    "fine_tuning": "jobs",
    "jobs": "jobs",
    "sweeps": "jobs",
    "sessions": "jobs",
    "models": "models",
    "bases": "models",
    "gate": "models",
    "deployments": "models",
    "serving_pools": "models",
    "chat": "chat",
    "completions": "chat",
    "embeddings": "chat",
    "responses": "chat",
    "batches": "chat",
    "webhook_endpoints": "webhooks",
    "webhook_event_types": "webhooks",
    "integrations": "webhooks",
    "keys": "keys",
    "approval_rules": "keys",  # who may change keys says whose approvals count
    "audit": "keys",  # and says what they did
    "budgets": "budgets",
    "usage": "billing",
    "invoices": "billing",
    "billing": "billing",
}
#: requests of the SDK that record nothing
SDK_READING: Final = frozenset(
    {
        "client/config",
        "client/dynamic_config",
        "get_server_capabilities",
        "get_info",
        "healthz",
        "retrieve_future",
        "telemetry",
        "weights_info",
    }
)
SDK_PREFIX: Final = "/api/v1/"  # of the routes of sessions
READING: Final = frozenset({"GET", "HEAD"})
ASKING: Final = (
    "/estimate",
    "/plan",
    "/preview",
    "/graders/validate",
    "/graders/run",
)  # POST only because they have a body: they record nothing


def scope_of(method: str, path: str) -> str:
    """The scope that a request needs: RESOURCE.ACTION, or ACTION for an unknown resource."""
    action = "read" if method in READING or path.endswith(ASKING) else "write"
    if path.startswith(SDK_PREFIX):
        return "jobs.read" if path.removeprefix(SDK_PREFIX) in SDK_READING else "jobs.write"
    resource = RESOURCES.get(path.removeprefix("/v1/").partition("/")[0])
    return action if resource is None else f"{resource}.{action}"


def allows(scopes: frozenset[str], needed: str) -> bool:
    """Return whether the scopes contain `needed`, or its action for all resources."""
    return needed in scopes or needed.rpartition(".")[2] in scopes
