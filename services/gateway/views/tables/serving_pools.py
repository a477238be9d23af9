"""Read models of serving pools and their replicas."""

from typing import Final

from schemas.account import Lane
from schemas.envelope import Reason
from schemas.sealed import Sealed
from schemas.serving import ServingPoolTerms
from schemas.units import Ms
from services.gateway.views.table import Table, TableIndex, TableRow


class ServingPoolRow(TableRow):
    """A serving pool as it is wanted."""

    tenant: str
    set_at: Ms
    terms: ServingPoolTerms
    lane: Lane
    # stalled_code, stalled_reason: why a replica is missing and none begins; None: nothing is wrong
    stalled_code: str | None = None
    stalled_reason: Reason | None = None


class ReplicaRow(TableRow):
    """A term of a replica, from its beginning to its end; `id` is the term's."""

    tenant: str
    serving_pool_id: str
    begun_at: Ms
    granted_at: Ms | None = None  # null while it waits for its slots
    # started_at, endpoint: since when it answers, and where
    started_at: Ms | None = None
    node_id: str | None = None
    draining: bool | None = None  # it takes no new questions
    endpoint: Sealed | None = None


SERVING_POOLS: Final = Table("serving_pools", ServingPoolRow, key=("tenant", "id"), order="set_at")
REPLICAS: Final = Table(
    "replicas",
    ReplicaRow,
    key=("tenant", "id"),
    order="begun_at",
    indexes=(TableIndex(("tenant", "serving_pool_id")),),
)
