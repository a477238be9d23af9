"""Bodies and responses of serving pools."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field, StrictInt

from schemas.account import Lane
from services.gateway.views.tables.serving_pools import ReplicaRow, ServingPoolRow
from services.gateway.web.domain.bodies import Body, Id
from services.gateway.web.domain.responses import ListItem, Response, Seconds
from services.gateway.wording import refusal_words

REPLICAS_MAX: Final = 32  # of a tenant
Replicas = Annotated[StrictInt, Field(ge=0, le=REPLICAS_MAX)]


class ServingPoolRequest(Body):
    """Replicas that are wanted: of which base model, how many, and what each of them holds."""

    model: Id = Field(description="the base model, whose versions they answer with, too")
    replicas: Replicas = 1
    slots: Annotated[StrictInt, Field(ge=1, le=64)] = Field(
        default=1, description="of a node, that each replica holds"
    )
    term_minutes: Annotated[StrictInt, Field(ge=2, le=1_440)] = Field(
        default=60, description="after which a replica is replaced by one with a new hold"
    )


class ReplicasRequest(Body):
    """Another number of replicas; 0: none, and the serving pool stays."""

    replicas: Replicas


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
