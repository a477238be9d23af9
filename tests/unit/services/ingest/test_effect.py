"""Validation and preparation for real, over object storage in memory."""

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from schemas import errors
from schemas.dataset import (
    FileContent,
    FileRegistered,
    PreparationDue,
    PrepareSpec,
    RecordPrepared,
    RecordValidation,
)
from schemas.reasons import Failure, failing
from schemas.sealed import Sealed
from schemas.storage import FileTerms
from schemas.streams import PARTITIONS
from schemas.topics import ACCOUNT
from services.gateway.wording import file_words
from services.ingest.adapters.process_workbench import ProcessWorkbench
from services.ingest.adapters.tasks import Answer, Task
from services.ingest.adapters.worker import process
from services.ingest.effect import LEASE_MS, Workers, erase, erase_tenant, prepare, validate
from services.ingest.ports import LocalBase, Workbench, WorkFailed
from services.ingest.project import EraseFileBlob, EraseTenantBlobs
from tests.unit.services.ingest.base import make_base, rows
from tunery.platform.memory_servers import memory_servers
from tunery.platform.seal.memory import MemoryKeyStore
from tunery.platform.seal.sealer import Sealer
from tunery.runtime.blobs.abstract import BlobCorrupt
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.verbs import GoOnLater, RetryLater, Send

SHA = "b" * 64
SEALED = Sealed(key_id="k", nonce=b"n", ciphertext=b"c")
MINUTE_MS = 60_000
SEAL = Sealer(MemoryKeyStore())
EMPTY_MESSAGES = (
    "Invalid file format. Example 13: The list of messages is empty (messages_empty). 2 errors in "
    "all."
)


def detail_of(failure: Failure | None) -> str:
    """What the process said, opened."""
    assert failure is not None
    assert failure.detail is not None
    return SEAL.open(failure.detail, "detail")


class WorkbenchHere(ProcessWorkbench):
    """The worker's work is done in this process: half a second less for each file.

    What the process adds is tested in `test_process_workbench.py`.
    """

    async def _run(self, task: Task, *_: object, **__: object) -> Answer:
        sent = msgspec.json.decode(msgspec.json.encode(task), type=Task)
        answer: Answer = msgspec.json.decode(msgspec.json.encode(process(sent)), type=Answer)
        return answer


class World:
    """Effects over memory blobs, one base model, one work folder."""

    def __init__(self, tmp_path: Path, workers: Workbench | None = None) -> None:
        self.blobs, self.scratch = MemoryBlobs(), tmp_path / "scratch"
        path = str(make_base(tmp_path / "base"))
        self.bases: tuple[LocalBase, ...] = (LocalBase(base_id="small", sha256=SHA, path=path),)
        workers = workers or WorkbenchHere(work_ms_max=MINUTE_MS)
        self.validate = validate(
            self.blobs, SEAL, workers, self.listed, self.scratch, Workers(1, 1)
        )
        self.prepare = prepare(self.blobs, SEAL, workers, self.listed, self.scratch, Workers(1, 1))

    async def listed(self) -> tuple[LocalBase, ...]:
        return self.bases

    async def file(self, data: bytes) -> FileRegistered:
        sha256 = hashlib.sha256(data).hexdigest()
        key = f"t/acme/files/{sha256}"
        await self.blobs.put(key, data)
        return FileRegistered(
            file_id="file-1",
            terms=FileTerms(purpose="fine-tune", name=SEALED),
            content=FileContent(bytes=len(data), sha256=sha256, blob=key),
        )

    async def due(self, data: bytes, **spec: Any) -> PreparationDue:
        file = await self.file(data)
        wanted = PrepareSpec(
            base_id="small",
            base_sha256=SHA,
            max_length=128,
            length_policy="reject",
            validation_fraction_ppm=200_000,
            seed=1,
        )
        return PreparationDue(
            prepare_id="p",
            training_blob=file.content.blob,
            training_sha256=file.content.sha256,
            validation_blob=None,
            spec=replace(wanted, **spec),
        )


def validation_of(send: Send | None) -> RecordValidation:
    assert send is not None
    assert (send.stream, send.key) == ("dataset", "acme")
    assert isinstance(send.body, RecordValidation)
    return send.body


def prepared_of(send: Send | None) -> RecordPrepared:
    assert send is not None
    assert isinstance(send.body, RecordPrepared)
    return send.body


async def test_a_good_file_is_counted_and_its_report_kept(tmp_path: Path) -> None:
    world = World(tmp_path)
    record = validation_of(await world.validate.run(await world.file(rows(12)), "acme"))
    assert record.validation is not None
    assert record.validation.accepted
    assert (record.validation.rows, record.validation.dialect) == (12, "chat")
    (counted,) = record.validation.tokens
    assert counted.base_sha256 == SHA
    assert counted.tokens > counted.trainable_tokens > 0
    report = json.loads(world.blobs.bodies[record.validation.report_blob])
    assert report["verdict"] == "accepted"
    assert record.validation.report_blob.startswith("t/acme/reports/file-1/")
    assert list(world.scratch.iterdir()) == []


async def test_a_bad_file_is_rejected_with_every_row(tmp_path: Path) -> None:
    world = World(tmp_path)
    data = rows(12) + b'{"messages": []}\nnot json\n'
    record = validation_of(await world.validate.run(await world.file(data), "acme"))
    assert record.validation is not None
    assert not record.validation.accepted
    assert record.validation.tokens == ()
    report = json.loads(world.blobs.bodies[record.validation.report_blob])
    assert {13, 14} <= {error["row"] for error in report["errors"]}


@pytest.mark.parametrize(
    ("data", "rows_max", "code", "message"),
    [
        (
            rows(7),
            None,
            "invalid_n_examples",
            "Training file has 7 example(s), but must have at least 10 examples.",
        ),
        (
            rows(12),
            11,
            "invalid_n_examples",
            "Training file has more than 11 example(s), which is the most allowed here.",
        ),
        (
            b'{"messages": [{"role": "Lamp", "content": "sealed words"}]}\n' + rows(12),
            12,
            "invalid_n_examples",
            "Training file has more than 12 example(s), which is the most allowed here.",
        ),
        (
            rows(12) + b'{"messages": []}\n{"sealed words": \n',
            None,
            "invalid_training_file",
            EMPTY_MESSAGES,
        ),
    ],
)
async def test_a_rejection_has_the_code_and_message_of_openai(
    tmp_path: Path, data: bytes, rows_max: int | None, code: str, message: str
) -> None:
    world = World(tmp_path)
    file = await world.file(data)
    file = replace(file, terms=replace(file.terms, rows_max=rows_max))
    record = validation_of(await world.validate.run(file, "acme"))
    assert record.validation is not None
    assert not record.validation.accepted
    failure = record.validation.failure
    assert failure is not None
    assert (failure.code, failure.detail) == (code, None)
    assert file_words(failure.reason) == message
    assert failure.reason.params["file_id"] == file.file_id


async def test_rows_are_checked_without_base_models(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.bases = ()
    record = validation_of(await world.validate.run(await world.file(rows(12)), "acme"))
    assert record.validation is not None
    assert record.validation.accepted
    assert record.validation.tokens == ()


async def test_a_base_without_a_usable_tokenizer_does_not_reject_the_file(tmp_path: Path) -> None:
    world = World(tmp_path)
    broken = LocalBase(base_id="broken", sha256=SHA, path=str(tmp_path / "nothing"))
    world.bases = (broken, *world.bases)
    record = validation_of(await world.validate.run(await world.file(rows(12)), "acme"))
    assert record.validation is not None
    assert record.validation.accepted
    assert [counted.base_id for counted in record.validation.tokens] == ["small"]


async def test_damage_and_timeouts_are_retried_then_reported(tmp_path: Path) -> None:
    world = World(tmp_path, ProcessWorkbench(work_ms_max=1))
    file = await world.file(rows(12))
    with pytest.raises(WorkFailed, match="more than 1 ms"):
        await world.validate.run(file, "acme")
    world.blobs.bodies[file.content.blob] = b"other bytes"
    with pytest.raises(BlobCorrupt):
        await world.validate.run(file, "acme")
    assert world.validate.exhausted is not None
    record = validation_of(world.validate.exhausted(file, "acme", "the disk is full"))
    assert record.validation is None
    assert record.failure is not None
    assert record.failure.reason == failing("file_unchecked")
    assert detail_of(record.failure) == "the disk is full"


async def test_a_dataset_is_prepared_the_same_way_every_time(tmp_path: Path) -> None:
    world = World(tmp_path)
    due = await world.due(rows(30))
    first = prepared_of(await world.prepare.run(due, "acme"))
    assert first.prepared is not None
    prepared = first.prepared
    assert prepared.train_rows + prepared.validation_rows == 30
    assert prepared.validation_rows >= 6
    assert 0 < prepared.packed_rows < prepared.train_rows
    for key, sha256 in (
        (prepared.train_blob, prepared.train_sha256),
        (prepared.validation_blob, prepared.validation_sha256),
        (prepared.prompts_blob, prepared.prompts_sha256),
    ):
        assert hashlib.sha256(world.blobs.bodies[key]).hexdigest() == sha256
        assert key.startswith("t/acme/prepared/p/")
    assert prepared_of(await world.prepare.run(due, "acme")) == first
    assert list(world.scratch.iterdir()) == []


async def test_a_row_that_does_not_fit_is_refused_at_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    record = prepared_of(await world.prepare.run(await world.due(rows(12), max_length=5), "acme"))
    assert record.prepared is None
    assert record.failure is not None
    assert "row_too_long" in detail_of(record.failure)
    assert record.failure.reason == failing("rows_unpreparable")
    assert record.failure.code == errors.FILE_REJECTED


async def test_texts_are_split_where_the_job_says_so_and_chats_are_not(tmp_path: Path) -> None:
    world = World(tmp_path)
    texts = b"".join(b'{"text": "%d %s"}\n' % (n, b"A lamp at sea. " * 20) for n in range(12))
    spec: dict[str, Any] = {"max_length": 32, "length_policy": "split"}
    prepared = prepared_of(await world.prepare.run(await world.due(texts, **spec), "acme")).prepared
    assert prepared is not None
    assert prepared.train_rows + prepared.validation_rows == 12
    assert prepared.tokens > 32 * prepared.train_rows
    refused = prepared_of(await world.prepare.run(await world.due(rows(12), **spec), "acme"))
    assert "split_not_text" in detail_of(refused.failure)
    assert refused.failure is not None
    assert refused.failure.code == errors.FILE_REJECTED


async def test_a_base_that_changed_is_refused_at_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.bases = (replace(world.bases[0], sha256="c" * 64),)
    record = prepared_of(await world.prepare.run(await world.due(rows(12)), "acme"))
    assert record.prepared is None
    assert record.failure is not None
    assert record.failure.reason == failing("base_unregistered", base_id="small", sha256=SHA)
    assert record.failure.code == errors.UNKNOWN_BASE


async def test_deleted_bytes_are_erased(tmp_path: Path) -> None:
    blobs = MemoryBlobs()
    await blobs.put("t/acme/x", b"1")
    assert await erase(blobs).run(EraseFileBlob(blob="t/acme/x"), "acme") is None
    assert not blobs.bodies


async def test_what_was_stored_again_after_an_inventory_stays() -> None:
    now = iter((1_000, 5_000))
    blobs = MemoryBlobs(lambda: next(now))
    await blobs.put("t/acme/old", b"1")
    await blobs.put("t/acme/again", b"2")
    for blob in ("t/acme/old", "t/acme/again"):
        await erase(blobs).run(EraseFileBlob(blob=blob, before=5_000), "acme")
    assert [*blobs.bodies] == ["t/acme/again"]


async def test_review2_w1_a_folder_is_emptied_again_once_late_work_is_over() -> None:
    """Seeds 511 and 679 of the simulator's artifacts: a check that had lost its row stored its
    report after the file was deleted, and ended without a word.
    """
    blobs, row = MemoryBlobs(), EraseFileBlob(blob="t/acme/reports/f/")
    await blobs.put("t/acme/reports/f2/a", b"another file's")
    await blobs.put("t/acme/reports/f/a", b"1")
    with pytest.raises(GoOnLater) as later:
        await erase(blobs).run(row, "acme", 1)
    assert (later.value.delay_ms, later.value.counts) == (LEASE_MS, True)
    assert [*blobs.bodies] == ["t/acme/reports/f2/a"]
    await blobs.put("t/acme/reports/f/b", b"late")
    assert await erase(blobs).run(row, "acme", 2) is None
    assert [*blobs.bodies] == ["t/acme/reports/f2/a"]


async def test_review2_w1_late_work_is_over_before_the_second_try_whatever_the_first_came_to() -> (
    None
):
    class Failing(MemoryBlobs):
        async def delete_below(self, prefix: str, *, but: str | None = None) -> int:
            raise ValueError("not an outage, so the try counts")

    effect = erase(Failing())
    with pytest.raises(ValueError, match="counts"):
        await effect.run(EraseFileBlob(blob="t/acme/reports/f/"), "acme", 1)
    assert effect.delay_ms(1) >= LEASE_MS
    assert effect.row_lease_ms >= LEASE_MS  # of a process that was killed


async def test_security_h4_a_tenants_objects_go_until_none_is_left_and_then_it_is_reported() -> (
    None
):
    servers = await memory_servers()
    runtime, blobs = servers.runtime("ingest"), servers.blobs
    kept = ("t/acme/exports/focus.csv", "t/acme2/files/a", "exports/pool/0/newest.json")
    for key in (*kept, "t/acme/files/a", "t/acme/models/m/w"):
        await blobs.put(key, b"x")
    effect = erase_tenant(blobs, runtime.sender)

    async def reports() -> int:
        ends = [await servers.log.bounds(ACCOUNT.commands.name, at) for at in range(PARTITIONS)]
        return sum(end for _, end in ends)

    with pytest.raises(RetryLater):
        await effect.run(EraseTenantBlobs(), "acme", 1)
    assert sorted(blobs.bodies) == sorted(kept)
    await blobs.put("t/acme/files/late", b"x")
    with pytest.raises(RetryLater):
        await effect.run(EraseTenantBlobs(), "acme", 2)
    assert await reports() == 0
    assert await effect.run(EraseTenantBlobs(), "acme", 3) is None
    assert (await reports(), sorted(blobs.bodies)) == (1, sorted(kept))
