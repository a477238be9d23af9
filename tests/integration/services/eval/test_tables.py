"""The tables of the service in the real database: what the verdict reads from them."""

from uuid import uuid4

import msgspec

from schemas.gate import GatePolicy, GatePolicySet
from schemas.model import StageMoved, VersionDeleted, VersionPublished
from schemas.topics import MODEL
from services.eval.app import TODOS
from services.eval.project import POLICIES, VERSIONS, project
from tests.unit.services.eval.samples import TERMS
from tests.unit.services.headers import header
from tunery.local.stack import Stack
from tunery.platform.store.postgres import open_store
from tunery.runtime.journal.reader import Position
from tunery.runtime.store.abstract import RowBatch

HELD = {"tenant": "acme", "series": TERMS.series, "stage": "production"}


async def test_the_version_in_production_and_policies_are_read_back(servers: Stack) -> None:
    store = await open_store(servers.postgres_dsn, f"eval_{uuid4().hex[:12]}", 2)
    policy = GatePolicy(blocking=("holdout",), drop_max_ppm=20_000)
    moved = StageMoved(
        model_id=TERMS.model_id,
        series=TERMS.series,
        stage="production",
        replaced=None,
        by="promotion",
    )
    events = (
        VersionPublished(terms=TERMS, files=(), quarantined=False),
        moved,
        GatePolicySet(base_id="small", policy=policy),
    )
    try:
        await store.ensure(TODOS.described())
        for number, event in enumerate((*events, VersionDeleted(model_id=TERMS.model_id))):
            changes = project(header("model"), event)
            batch = RowBatch(
                *(TODOS.name, TODOS.version, (MODEL.name, 0), number, Position(number + 1)),
                changes=changes,
            )
            if isinstance(event, VersionDeleted):
                (row,) = await store.rows(VERSIONS, HELD)
                assert (row["model_id"], row["job_id"]) == (TERMS.model_id, TERMS.lineage.job_id)
            await store.commit(batch)
        assert await store.rows(VERSIONS, HELD) == []
        (row,) = await store.rows(POLICIES, {"tenant": "acme", "base_id": "small"})
        assert msgspec.json.decode(row["policy"], type=GatePolicy) == policy
    finally:
        await store.close()
