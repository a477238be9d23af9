"""The hosts of the composition root on a log in memory, with real worker processes."""

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.dataset import (
    DatasetPinned,
    DatasetPrepared,
    DatasetReady,
    FileContent,
    FileRegistered,
    FileValidated,
    PinDataset,
    PinTerms,
    PreparationDue,
    PrepareSpec,
    RegisterFile,
)
from schemas.model import AddBase, Base
from schemas.storage import FileTerms
from schemas.streams import GLOBAL, PARTITIONS
from schemas.topics import DATASET, MODEL
from services.ingest.adapters.process_workbench import ProcessWorkbench
from services.ingest.app import build
from services.ingest.project import BASES
from services.registry.app import MODELS
from tests.hosts import running
from tests.unit.services.ingest.base import make_base, rows
from tests.unit.services.ingest.test_effect import SEALED
from tests.unit.tunery.runtime.hosts.toy_service import until
from tunery.platform.memory_servers import memory_servers
from tunery.platform.ports import Runtime
from tunery.platform.settings import SettingsError
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.journal.reader import START, JournalReader

PATIENCE_S = 180
BASE = Base(
    base_id="small",
    sha256="b" * 64,
    path="",
    parameters=1,
    context_length=256,
    family="small",
    licence="Apache-2.0",
    hidden_size=1,
)
SPEC = PrepareSpec(
    base_id=BASE.base_id,
    base_sha256=BASE.sha256,
    max_length=128,
    length_policy="reject",
    validation_fraction_ppm=200_000,
    seed=1,
)


class Ingest:
    """The service and one tenant of it. `worked`: pieces of work that its processes did."""

    def __init__(self, runtime: Runtime, worked: Counter[str]) -> None:
        self.runtime, self.worked = runtime, worked
        self.events: list[Any] = []

    async def send(self, body: Any) -> None:
        await self.runtime.sender.send(DATASET, "acme", "acme", body)

    async def file(self, file_id: str, data: bytes) -> None:
        sha256 = hashlib.sha256(data).hexdigest()
        blob = f"t/acme/files/{sha256}"
        await self.runtime.blobs.put(blob, data)
        register = RegisterFile(
            file_id=file_id,
            terms=FileTerms(purpose="fine-tune", name=SEALED),
            content=FileContent(bytes=len(data), sha256=sha256, blob=blob),
        )
        await self.send(register)
        await self.until(
            lambda event: isinstance(event, FileValidated) and event.file_id == file_id
        )

    async def pin(self, job_id: str, file_id: str, spec: PrepareSpec = SPEC) -> DatasetReady:
        pin = PinDataset(
            job_id=job_id, terms=PinTerms(training_file=file_id, validation_file=None, spec=spec)
        )
        await self.send(pin)
        ready: DatasetReady = await self.until(
            lambda event: isinstance(event, DatasetReady) and event.job_id == job_id
        )
        return ready

    async def until(self, wanted: Callable[[Any], bool]) -> Any:
        """The first event like this; all events of the tenant until now are in `events`."""
        matching: list[Any] = []

        async def there() -> bool:
            self.events = await self._read()
            matching[:] = filter(wanted, self.events)
            return bool(matching)

        await until(there, PATIENCE_S)
        return matching[0]

    async def _read(self) -> list[Any]:
        partition = partition_of(b"acme")
        reader = JournalReader(self.runtime.log, DATASET, {partition: START})
        await reader.open()
        try:
            batch = (await reader.read(0))[partition]
            return [event for entry in batch.accepted for event in entry.events]
        finally:
            await reader.close()


@pytest.fixture
def worked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    monkeypatch.setenv("TUNERY_INGEST_WORK_DIR", str(tmp_path / "scratch"))
    monkeypatch.setenv("TUNERY_INGEST_BENCHMARKS_DIR", str(tmp_path / "benchmarks"))
    counted: Counter[str] = Counter()
    run = ProcessWorkbench._run

    async def count(self: ProcessWorkbench, task: Any, *folders: Any, **more: Any) -> Any:
        counted[type(task).__name__] += 1
        return await run(self, task, *folders, **more)

    monkeypatch.setattr(ProcessWorkbench, "_run", count)
    return counted


@asynccontextmanager
async def serving(tmp_path: Path, worked: Counter[str]) -> AsyncIterator[Ingest]:
    here = await memory_servers()
    runtime = here.runtime("ingest")
    models = AggregateHost(here.runtime("registry"), MODELS)
    async with running(models, *await build(runtime)):
        base = replace(BASE, path=str(make_base(tmp_path / "base")))
        for number in range(PARTITIONS):
            await runtime.sender.send(MODEL, GLOBAL, GLOBAL, AddBase(base=base), partition=number)

        async def known() -> bool:
            return bool(await runtime.store.rows(BASES))

        await until(known)
        yield Ingest(runtime, worked)


@pytest.mark.long
async def test_a_prepared_directory_is_reused(tmp_path: Path, worked: Counter[str]) -> None:
    """Given a dataset prepared for a job, when others want the same, then no work is due."""
    async with serving(tmp_path, worked) as ingest:
        await ingest.file("file-1", rows(20))
        first = await ingest.pin("job-1", "file-1")
        assert worked == {"CheckTask": 1, "PrepareTask": 1}
        before = len(ingest.events)

        second = await ingest.pin("job-2", "file-1")
        assert [type(event) for event in ingest.events[before:]] == [DatasetPinned, DatasetReady]
        assert second.prepared == first.prepared

        await ingest.file("file-2", rows(20))  # the same bytes, uploaded again
        third = await ingest.pin("job-3", "file-2")
        assert third.prepared == first.prepared
        kinds = Counter(type(event) for event in ingest.events)
        assert (kinds[FileRegistered], kinds[PreparationDue], kinds[DatasetPrepared]) == (2, 1, 1)
        assert worked == {"CheckTask": 2, "PrepareTask": 1}

        other = await ingest.pin("job-4", "file-1", replace(SPEC, max_length=64))
        assert other.prepared.version != first.prepared.version
        assert worked == {"CheckTask": 2, "PrepareTask": 2}


async def test_a_missing_screening_model_prevents_the_start(
    worked: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNERY_INGEST_TOXICITY_MODEL", "not_there:model")
    with pytest.raises(SettingsError, match="'not_there:model' cannot be imported"):
        await build((await memory_servers()).runtime("ingest"))
    assert not worked
