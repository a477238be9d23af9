"""Rows of serving pools and replicas: gone at the end, whichever journal is read first."""

from schemas.pool import (
    AttemptEnd,
    LeaseDraining,
    LeaseGranted,
    LeaseMember,
    LeaseRef,
    LeaseStarted,
    Placement,
    PlacementClosed,
    Token,
)
from schemas.reasons import ending, refusing
from schemas.sealed import Sealed
from schemas.serving import (
    ReplicaTerms,
    ServingPoolRemoved,
    ServingPoolSet,
    ServingPoolStalled,
    ServingPoolTerms,
    ServingTermBegun,
    ServingTermDraining,
    ServingTermEnded,
)
from schemas.submission import Price
from schemas.training import AttemptStart, ServeWork, WorkDescription, work_id_of
from services.gateway.views.tables.serving_pools import REPLICAS, SERVING_POOLS
from tests.unit.services.gateway.bases import BASE
from tests.unit.services.gateway.view_rows import folded, only, rows
from tunery.platform.seal.memory import MemoryKeyStore
from tunery.platform.seal.sealer import Sealer

SEAL = Sealer(MemoryKeyStore())
POOL, TERM = "spool-1", "spool-1-1"
PRICE = Price(version="v", currency="EUR", gpu_hour_micro=1)
TERMS = ServingPoolTerms(
    serving_pool_id=POOL,
    replicas=1,
    replica=ReplicaTerms(base=BASE, pool="default", slots=1, memory_bytes=1, term_ms=60_000),
    price=PRICE,
)
WORK = ServeWork(
    serving_pool_id=POOL, base_id=BASE.base_id, base_sha256=BASE.sha256, base_path=BASE.path
)
LEASE = LeaseRef(
    token=Token(pool="default", lease=1),
    tenant="acme",
    job_id=TERM,
    attempt=1,
    role="serve",
    lane="standard",
    price_version="v",
)
END = AttemptEnd(outcome="preempted", ended_by="budget", reason=ending("exited"))
BEGUN = ServingTermBegun(
    serving_pool_id=POOL,
    pool="default",
    description=WorkDescription(job_id=TERM, work_id=work_id_of(WORK), work=WORK),
    placement=Placement(
        tenant="acme",
        job_id=TERM,
        attempt=1,
        role="serve",
        lane="standard",
        slots=1,
        max_gpu_ms=60_000,
        price_version="v",
        work_id=work_id_of(WORK),
        checkpoints=(),
        excluded_nodes=(),
        first_submitted_at=1,
        p50_ms=60_000,
        p90_ms=60_000,
        device="cpu",
        memory_bytes=1,
    ),
    hold_gpu_ms=60_000,
    price=PRICE,
    price_max_micro=1,
)
SET = ServingPoolSet(terms=TERMS, lane="standard")
IN_JOB = (
    SET,
    BEGUN,
    ServingTermDraining(term_id=TERM),
    ServingTermEnded(
        term_id=TERM, serving_pool_id=POOL, pool="default", end=END, released_gpu_ms=0
    ),
    ServingPoolRemoved(serving_pool_id=POOL),
)
MEMBER = LeaseMember(node_id="a", incarnation="a1", slots=1, devices=(0,))


def in_pool(endpoint: Sealed) -> tuple[object, ...]:
    start = AttemptStart(loaded=None, loaded_step=0, skipped=(), total_steps=0, endpoint=endpoint)
    return (
        LeaseGranted(lease=LEASE, members=(MEMBER,)),
        LeaseStarted(lease=LEASE, start=start),
        LeaseDraining(lease=LEASE, deadline=9, ended_by="budget", reason=ending("exited")),
        PlacementClosed(tenant="acme", job_id=TERM, attempt=1, role="serve", end=END),
    )


def test_a_replica_answers_from_its_start_until_it_drains() -> None:
    endpoint = SEAL.seal("acme", "{}", "endpoint")
    records = folded("job", SET, BEGUN)
    assert only(records, REPLICAS).endpoint is None
    granted, started, draining, closed = in_pool(endpoint)
    folded("pool", granted, started, key="default", records=records)
    row = only(records, REPLICAS)
    assert (row.serving_pool_id, row.node_id, row.endpoint) == (POOL, "a", endpoint)
    assert not row.draining
    folded("pool", draining, key="default", records=records)
    assert only(records, REPLICAS).draining
    folded("pool", closed, key="default", records=records)
    assert rows(records, REPLICAS) == []


def test_nothing_is_left_whichever_journal_is_read_first() -> None:
    pool = in_pool(SEAL.seal("acme", "{}", "name"))
    first = folded("pool", *pool, key="default", records=folded("job", *IN_JOB))
    second = folded("job", *IN_JOB, records=folded("pool", *pool, key="default"))
    for records in (first, second):
        assert not records[REPLICAS.name]
        assert not records[SERVING_POOLS.name]


def test_a_pool_is_stalled_until_a_term_begins_or_it_is_set_again() -> None:
    stalled = ServingPoolStalled(
        serving_pool_id=POOL, code="x", reason=refusing("serving_pools_at_most", limit=1)
    )
    assert only(folded("job", SET, stalled), SERVING_POOLS).stalled_code == "x"
    for event in (SET, BEGUN):
        assert only(folded("job", SET, stalled, event), SERVING_POOLS).stalled_code is None
