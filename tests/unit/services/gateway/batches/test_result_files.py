"""The files of batches: of rows that expired, and written twice."""

import asyncio

from schemas.batch import BatchClosing
from schemas.dataset import FileContent
from services.gateway.batches.result_files import batch_files
from services.gateway.views.tables.batches import BATCH_PARTS
from services.gateway.views.tables.files import FILES
from tests.unit.services.gateway.batches.test_routes import begin, file_of, lines, row, until
from tests.unit.services.gateway.batches.test_row_answers import held, sent
from tests.unit.services.gateway.chat.scripted_engine import ScriptedEngine
from tests.unit.services.gateway.chat.test_routes import engine, sdk
from tests.unit.services.gateway.control_plane import ControlPlane

__all__ = ["engine", "held"]


async def test_rows_whose_turn_does_not_come_in_time_expire(
    api: ControlPlane, held: asyncio.Event
) -> None:
    http = await api.tenant()
    tenant = http.headers["x-tenant"]
    async with sdk(http) as client:
        file = await client.files.create(
            file=("rows.jsonl", file_of(row("a"), "bad")), purpose="batch"
        )
        stored = await api.deps.views.first(FILES, {"tenant": tenant, "id": file.id})
        assert stored is not None
        content = FileContent(bytes=stored.bytes, sha256=stored.sha256, blob=stored.blob)
        key_id = (await http.get("/v1/keys/current")).json()["id"]
        batch_id = await sent(api, tenant, content=content, key_id=key_id, window_ms=500)
        batch = await until(client, await client.batches.retrieve(batch_id))
        assert batch.status == "expired"
        (line,) = await lines(client, batch.error_file_id)
    assert (line["custom_id"], line["error"]["code"]) == ("a", "batch_expired")


async def test_a_batch_that_has_ended_gets_no_files_again(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    http = await api.tenant()
    tenant = http.headers["x-tenant"]
    async with sdk(http) as client:
        batch = await until(client, await begin(client, file_of(row("a"))))
        await batch_files(api.deps).run(BatchClosing(batch_id=batch.id, why="completed"), tenant)
        files = [file.id async for file in client.files.list(purpose="batch_output")]
    assert files == [batch.output_file_id]
    where = {"tenant": tenant, "batch_id": batch.id}
    assert await api.deps.views.first(BATCH_PARTS, where) is None
