"""Audit records of requests: identifiers, never text of a tenant."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from schemas.audit import AuditEntry, AuditKind
from schemas.ids import MODEL as MODEL_PREFIX
from services.gateway.ports import AuditNotes
from services.gateway.web.deps import Principal
from services.gateway.web.domain.scopes import ASKING, READING, RESOURCES
from services.gateway.web.edge import METHODS
from tunery.platform.seal.model_names import SUFFIX
from tunery.runtime.clock import Clock

#: routes that answer with what a tenant uploaded, wrote or trained, or with a URL of it
CONTENT: Final = frozenset(
    {
        "/v1/files/{file_id}/content",
        "/v1/files/{file_id}/validation",
        "/v1/files/{file_id}/diff",
        "/v1/fine_tuning/imports/{import_id}/report",
        "/v1/fine_tuning/preview",
        "/v1/fine_tuning/jobs/{job_id}/recipe",
        "/v1/fine_tuning/jobs/{job_id}/answers",
        "/v1/fine_tuning/jobs/{job_id}/logs",
        "/v1/fine-tuning/jobs/{job_id}/logs",
        "/v1/jobs/{job_id}/logs",
        "/v1/fine_tuning/checkpoints/{checkpoint_id:path}/download",
        "/v1/models/{model_id:path}:ckpt-step-{step:int}/adapter",
        "/v1/models/{model_id:path}/adapter",
        "/v1/models/{model_id:path}/gate/report",
        "/v1/models/{model_id:path}/files/{name}",
    }
)
CHAT: Final = "chat"
TENANTS: Final = "/v1/tenants"
REFUSALS: Final = frozenset({401, 403})
#: identifiers that we make: a prefix and hexadecimal digits
OWN_ID: Final = re.compile(r"[a-z]+[-_](?:ckpt-)?[0-9a-f]{8,64}")
#: parameters of paths that operators name, or that are built of identifiers alone
NAMED_BY_OPERATORS: Final = frozenset(
    {"tenant", "node_id", "base_id", "model_id", "version", "invoice_id", "step"}
)
NO_ID: Final = "[name]"
ID_CHARACTERS_MAX: Final = 200
BODY_BYTES_MAX: Final = 256 * 1024


class _ErrorPart(Struct):
    code: str | None = None


class _Answer(Struct):
    """Recorded part of a response body: the id of a created object, the code of an error."""

    id: str | None = None
    error: _ErrorPart | None = None


_ANSWERS: Final = msgspec.json.Decoder(_Answer)


class Observer:
    """Notes requests as they are answered; called once for each, before its body is sent.

    routes: routes of the application, to name the route of a request that was refused earlier.
    """

    def __init__(self, audit: AuditNotes, clock: Clock, routes: Sequence[BaseRoute]) -> None:
        self._audit, self._clock, self._routes = audit, clock, routes

    def __call__(self, scope: Scope, status: int, request_id: str, body: bytes) -> None:
        """body: its first bytes."""
        state: Mapping[str, Any] = scope.get("state", {})
        principal: Principal | None = state.get("principal")
        enrolled: str | None = state.get("enrolled_node")
        if principal is None and enrolled is None and status not in REFUSALS:
            return
        tenant, key_id = state.get("refused_key", ("", ""))
        if principal is not None:
            tenant, key_id = principal.tenant, principal.key_id
        entry = AuditEntry(
            at=self._clock.now_ms(),
            kind="use",
            tenant=tenant,
            actor_tenant=tenant,
            key_id=key_id,
            address=scope["client"][0] if scope.get("client") else "",
        )
        if principal is not None:
            self._audit.note(entry)
        # looking for a route takes a while: not for strangers, who may send many requests
        route, params = self._route(scope) if key_id or "route" in scope else ("", {})
        kind = _kind(scope, route, status, is_operator=bool(state.get("operator")))
        if kind is None:
            return
        answer = _read(body)
        names = {name: str(value) for name, value in params.items()}
        if principal is None:
            # a stranger's path is a stranger's text
            names = {} if enrolled is None else {"node_id": enrolled}
        elif answer.id is not None and scope["method"] == "POST":
            names["tenant" if route == TENANTS else "created"] = answer.id
        named = state.get("tenant", names.get("tenant", tenant))
        self._audit.note(
            msgspec.structs.replace(
                entry,
                kind=kind,
                tenant=named if status < 400 else tenant,
                method=scope["method"] if scope["method"] in METHODS else "other",
                route=route,
                object_ids=_object_ids(names, exists=status < 400),
                status=status,
                code=None if answer.error is None else answer.error.code,
                request_id=request_id,
            )
        )

    def _route(self, scope: Scope) -> tuple[str, Mapping[str, Any]]:
        """The template of the request's path, and what the path has for its parameters."""
        if "route" in scope:
            return scope["route"].path, scope.get("path_params", {})
        for route in self._routes:
            match, child = route.matches(scope)
            if match is Match.FULL:
                return getattr(route, "path", ""), child.get("path_params", {})
        return "", {}


def _kind(scope: Scope, route: str, status: int, *, is_operator: bool) -> AuditKind | None:
    if status in REFUSALS:
        return "refusal"
    if is_operator:
        return "operator"
    if route in CONTENT:
        return "content"
    if scope["method"] in READING or route.endswith(ASKING):
        return None
    resource = RESOURCES.get(route.removeprefix("/v1/").partition("/")[0])
    return "change" if route and resource != CHAT else None


def _read(body: bytes) -> _Answer:
    if not body.startswith(b"{") or len(body) > BODY_BYTES_MAX:
        return _Answer()
    try:
        return _ANSWERS.decode(body)
    except msgspec.MsgspecError:
        return _Answer()


def _object_ids(named: Mapping[str, str], *, exists: bool) -> tuple[str, ...]:
    ids = (_without_text(name, value, exists=exists) for name, value in named.items())
    return tuple(dict.fromkeys(ids))  # a change answers with the object that its path names


def _without_text(name: str, value: str, *, exists: bool) -> str:
    """The identifier, without a suffix that a tenant chose; NO_ID where it may be any text."""
    if OWN_ID.fullmatch(value):
        return value
    if not exists or len(value) > ID_CHARACTERS_MAX:
        return NO_ID
    parts = value.split(":")
    if value.startswith(MODEL_PREFIX) and len(parts) > SUFFIX:
        return ":".join((*parts[:SUFFIX], "", *parts[SUFFIX + 1 :]))
    return value if name in NAMED_BY_OPERATORS else NO_ID
