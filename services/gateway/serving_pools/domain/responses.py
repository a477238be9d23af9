"""Serving pools as responses."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from schemas.account import Lane
from services.gateway.views.tables.serving_pools import ReplicaRow, ServingPoolRow
from services.gateway.web.domain.responses import ListItem, Response, Seconds
from services.gateway.wording import refusal_words

ReplicaState: TypeAlias = Literal["waiting", "starting", "ready", "draining"]
MINUTE_MS = 60_000


class ReplicaResponse(Response):
    """A term of a replica. Its id is the job's in bills.

    state: `waiting` for its slots; `starting`: its model is verified and converted; `ready`;
    `draining`: it ends what it answers. since: of that state, but for `draining` of the one before.
    """

    id: str
    state: ReplicaState
    since: Seconds
    node: str | None


class StalledResponse(Response):
    """Why a replica is missing and none begins."""

    code: str
    message: str


class ServingPoolResponse(ListItem):
    """Replicas that are wanted, and those that there are.

    stalled: null where nothing keeps replicas from beginning.
    """

    id: str
    object: Literal["serving_pool"] = "serving_pool"
    model: str
    replicas: int
    ready: int
    slots: int
    term_minutes: int
    lane: Lane
    set_at: Seconds
    stalled: StalledResponse | None
    terms: list[ReplicaResponse]


def serving_pool_response(row: ServingPoolRow, terms: Sequence[ReplicaRow]) -> ServingPoolResponse:
    """A serving pool with its terms, the oldest first."""
    replica = row.terms.replica
    shown = [_replica(term) for term in terms if term.serving_pool_id == row.id]
    stalled = None
    if row.stalled_code is not None and row.stalled_reason is not None:
        words = refusal_words(row.stalled_reason)
        stalled = StalledResponse(code=row.stalled_code, message=words)
    return ServingPoolResponse.of(
        row,
        row.terms,
        replica,
        model=replica.base.base_id,
        ready=sum(term.state == "ready" for term in shown),
        term_minutes=replica.term_ms // MINUTE_MS,
        stalled=stalled,
        terms=shown,
    )


def _replica(row: ReplicaRow) -> ReplicaResponse:
    states: tuple[tuple[ReplicaState, int | None], ...] = (
        ("ready", row.started_at),
        ("starting", row.granted_at),
        ("waiting", row.begun_at),
    )
    state, since = next((state, at) for state, at in states if at is not None)
    return ReplicaResponse(
        id=row.id,
        state="draining" if row.draining else state,
        since=since,
        node=row.node_id,
    )
