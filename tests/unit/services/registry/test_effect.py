"""Publishing over object storage in memory: the whole way, damage, and repeats."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.gate import GateRun
from schemas.job import AttemptEnded, CheckpointRecorded, JobEnded
from schemas.model import RecordPublished, VersionGated, VersionPublished
from schemas.pool import AttemptEnd
from schemas.reasons import ending, failing
from schemas.topics import JOB
from schemas.training import BlobFile, Checkpoint, EvalResult, Result, TrainResult
from services.registry.app import TODOS
from services.registry.effect import erase, erase_work, final_key, publish
from services.registry.project import EraseModelFile, EraseVersionWork, project
from tests.unit.services.registry.samples import (
    MODEL,
    SHA,
    adapter,
    header,
    sha,
    submitted,
    whole_model,
)
from tests.unit.tunery.provenance.signed import NOW, new_key, trust_in
from tunery.platform.seal.memory import MemoryKeyStore
from tunery.platform.seal.model_names import logged_name
from tunery.platform.seal.sealer import Sealer
from tunery.provenance.folders import compare_folder
from tunery.runtime.blobs.abstract import BlobCorrupt, BlobMissing
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.clock import SystemClock
from tunery.runtime.journal.reader import Position
from tunery.runtime.store.abstract import RowBatch, Store
from tunery.runtime.store.memory import MemoryStore
from tunery.runtime.verbs import RetryLater, Send

SEAL = Sealer(MemoryKeyStore())


def recorded(send: Send | None) -> RecordPublished:
    assert send is not None
    assert (send.stream, send.key) == ("model", "acme")
    assert isinstance(send.body, RecordPublished)
    return send.body


@pytest.mark.parametrize("files_of", [adapter, whole_model])
async def test_a_version_is_copied_with_its_lineage_and_repeats_are_equal(
    files_of: Callable[[], dict[str, bytes]],
) -> None:
    blobs = MemoryBlobs()
    version = await submitted(blobs, files_of())
    outcome = recorded(await publish(blobs, SEAL).run(version, "acme"))
    assert outcome.failure is None
    assert {file.name for file in outcome.files} == {*files_of(), "lineage.json"}
    for file in outcome.files:
        body = blobs.bodies[file.blob]
        assert (sha(body), len(body)) == (file.sha256, file.bytes)
        assert file.blob == final_key("acme", MODEL, file.sha256, file.name)
    lineage = next(file for file in outcome.files if file.name == "lineage.json")
    assert json.loads(blobs.bodies[lineage.blob])["lineage"]["base_sha256"] == SHA
    assert recorded(await publish(blobs, SEAL).run(version, "acme")) == outcome


@pytest.mark.parametrize("files_of", [adapter, whole_model])
async def test_a_signed_version_is_verified_in_its_folder(
    files_of: Callable[[], dict[str, bytes]], tmp_path: Path
) -> None:
    blobs, key = MemoryBlobs(), new_key(tmp_path / "keys")
    version = await submitted(blobs, files_of())
    outcome = recorded(await publish(blobs, SEAL, key).run(version, "acme"))
    assert recorded(await publish(blobs, SEAL, key).run(version, "acme")) == outcome
    for file in outcome.files:
        (tmp_path / file.name).write_bytes(blobs.bodies[file.blob])
    (tmp_path / "keys").rename(tmp_path.parent / f"{tmp_path.name}-keys")
    compared = compare_folder(tmp_path, trust_in(key), NOW)
    records = {"lineage.json", "lineage.intoto.json", "bom.cdx.json"}
    assert {file.name for file in compared} == {*files_of(), *records}
    assert [file for file in compared if file.difference is not None] == []


async def test_security_h4_files_of_a_version_have_the_suffix_and_their_places_do_not(
    tmp_path: Path,
) -> None:
    blobs, key = MemoryBlobs(), new_key(tmp_path)
    version = await submitted(blobs, adapter())
    logged = logged_name(SEAL, "acme", MODEL)
    lineage = replace(version.terms.lineage, start_id=f"{logged}:ckpt-step-4")
    version = replace(version, terms=replace(version.terms, model_id=logged, lineage=lineage))
    outcome = recorded(await publish(blobs, SEAL, key).run(version, "acme"))
    assert outcome.model_id == logged
    assert not [file for file in outcome.files if "friendly" in file.blob]
    files = {file.name: blobs.bodies[file.blob] for file in outcome.files}
    shown = json.loads(files["lineage.json"])
    assert (shown["model_id"], shown["lineage"]["start_id"]) == (MODEL, f"{MODEL}:ckpt-step-4")
    for name in ("bom.cdx.json", "lineage.json"):
        assert MODEL.encode() in files[name]
        assert logged.encode() not in files[name]


async def test_a_whole_model_with_code_is_refused_at_once() -> None:
    blobs = MemoryBlobs()
    config = b'{"model_type": "x", "auto_map": {"AutoModel": "x.X"}}'
    version = await submitted(blobs, {**whole_model(), "config.json": config})
    outcome = recorded(await publish(blobs, SEAL).run(version, "acme"))
    assert outcome.failure is not None
    assert outcome.failure.reason == failing("adapter_unpublishable")


async def test_an_adapter_with_a_pickle_is_refused_at_once() -> None:
    blobs = MemoryBlobs()
    version = await submitted(blobs, {**adapter(), "adapter_model.bin": b"x"})
    outcome = recorded(await publish(blobs, SEAL).run(version, "acme"))
    assert outcome.files == ()
    assert outcome.failure is not None
    assert outcome.failure.reason == failing("adapter_unpublishable")
    assert outcome.failure.detail is not None
    assert "adapter_model.bin" in SEAL.open(outcome.failure.detail, "detail")


async def test_damaged_and_missing_bytes_are_tried_again_then_named() -> None:
    blobs = MemoryBlobs()
    version = await submitted(blobs, adapter())
    weights = "t/acme/jobs/1/adapter_model.safetensors"
    content = blobs.bodies[weights]
    blobs.bodies[weights] = content[:-1] + bytes([content[-1] ^ 1])
    with pytest.raises(BlobCorrupt, match="adapter_model"):
        await publish(blobs, SEAL).run(version, "acme")
    await blobs.delete("t/acme/jobs/1/adapter_config.json")
    with pytest.raises(BlobMissing):
        await publish(blobs, SEAL).run(version, "acme")
    exhausted = publish(blobs, SEAL).exhausted
    assert exhausted is not None
    failed = recorded(exhausted(version, "acme", "there is no blob"))
    assert failed.failure is not None
    assert failed.failure.reason == failing("publishing_failed")
    assert failed.failure.detail is not None
    assert SEAL.open(failed.failure.detail, "detail") == "there is no blob"


async def test_a_deleted_file_is_erased_once() -> None:
    blobs = MemoryBlobs()
    await blobs.put("t/acme/x", b"1")
    for _ in range(2):
        assert await erase(blobs).run(EraseModelFile(blob="t/acme/x"), "acme") is None
    assert not blobs.bodies


def ended_attempt(job_id: str, result: Result) -> AttemptEnded:
    end = AttemptEnd(
        outcome="succeeded", ended_by="training", reason=ending("exited"), result=result
    )
    return AttemptEnded(
        job_id=job_id,
        attempt=1,
        role="eval",
        end=end,
        job_billable_gpu_ms=0,
        job_lost_gpu_ms=0,
    )


def ended_job(job_id: str) -> JobEnded:
    return JobEnded(
        job_id=job_id,
        outcome="succeeded",
        model_id=MODEL,
        failure=None,
        trained_tokens=0,
        billable_gpu_ms=0,
        lost_gpu_ms=0,
        released_gpu_ms=0,
        created_at=0,
    )


async def apply(store: Store, offset: int, events: list[Any]) -> None:
    """Project events as the service does, from this offset on."""
    await store.ensure(TODOS.described())
    changes = [change for event in events for change in project(header(), event)]
    batch = RowBatch(
        TODOS.name, TODOS.version, (JOB.name, 0), offset, Position(offset + 1), changes
    )
    assert await store.commit(batch)


async def test_security_h5_what_the_jobs_of_a_deleted_version_left_is_erased() -> None:
    blobs, store = MemoryBlobs(), MemoryStore(SystemClock())
    left = [
        BlobFile(name="part", blob=f"t/acme/{name}", sha256="a" * 64, bytes=1)
        for name in ("checkpoints", "adapters", "scores", "of-another-job", "judged-again")
    ]
    for file in left:
        await blobs.put(file.blob, b"1")
    checkpoint = Checkpoint(
        attempt=1,
        step=1,
        epoch_ppm=0,
        tokens=1,
        manifest_sha256="a" * 64,
        files=(left[0],),
        captured_ms=0,
    )
    trained = TrainResult(
        adapter=(left[1],), config_sha256="a" * 64, steps=1, tokens=1, final_loss_ppm=None
    )
    version = await submitted(MemoryBlobs(), adapter())
    run = GateRun(
        model_id=MODEL,
        job_id="ftjob-3",
        base_sha256="a" * 64,
        verdict="pass",
        scores_sha256="a" * 64,
    )
    events: list[Any] = [
        CheckpointRecorded(job_id="ftjob-1", checkpoint=checkpoint, trained_tokens=1),
        ended_attempt("ftjob-1", trained),
        ended_attempt("ftjob-1", EvalResult(scores=left[2])),
        ended_attempt("ftjob-2", EvalResult(scores=left[3])),
        ended_attempt("ftjob-3", EvalResult(scores=left[4])),
        VersionPublished(terms=version.terms, files=(), quarantined=False),
        VersionGated(run=run, quarantined=False, stage="dev"),
        ended_job("ftjob-1"),
    ]
    await apply(store, 0, events)
    effect = erase_work(blobs, store)
    row = EraseVersionWork(model_id=MODEL)
    with pytest.raises(RetryLater, match="ftjob-3"):
        await effect.run(row, "acme", 1)
    assert len(blobs.bodies) == len(left), "nothing, before all of it is known"
    await apply(store, 1, [ended_job("ftjob-3")])
    for _ in range(2):
        assert await effect.run(row, "acme", 1) is None
    assert [*blobs.bodies] == [left[3].blob]
    assert await effect.run(row, "globex", 1) is None
    assert [*blobs.bodies] == [left[3].blob], "a version of this name of another tenant's"
