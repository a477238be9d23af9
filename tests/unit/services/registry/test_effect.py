"""Publishing over object storage in memory: the whole way, damage, and repeats."""

import hashlib
import json
import struct

import pytest

from schemas.dataset import KeepDataset, ReleaseDataset
from schemas.envelope import Header
from schemas.job import RecordBase, RecordRegistered
from schemas.model import (
    BaseRefused,
    Lineage,
    RecordPublished,
    VersionDeleted,
    VersionFailed,
    VersionPublished,
    VersionSubmitted,
)
from schemas.training import BlobFile
from services.registry.effect import erase, final_key, publish
from services.registry.project import ERASE, PUBLISH, EraseBlob, project
from services.registry.react import react_model
from tunery.runtime.blobs.abstract import BlobCorrupt, BlobMissing
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.verbs import Done, Send, Todo

SHA = "a" * 64
MODEL = "ft:small:acme:friendly:1"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def adapter() -> dict[str, bytes]:
    config = {"base_model_name_or_path": f"small@{SHA}", "r": 4}
    header = json.dumps(
        {"up.lora_A.weight": {"dtype": "F32", "shape": [4, 8], "data_offsets": [0, 128]}}
    ).encode()
    return {
        "adapter_config.json": (json.dumps(config, indent=2, sort_keys=True) + "\n").encode(),
        "adapter_model.safetensors": struct.pack("<Q", len(header)) + header + bytes(128),
    }


async def submitted(blobs: MemoryBlobs, files: dict[str, bytes]) -> VersionSubmitted:
    lineage = Lineage(
        job_id="ftjob-1",
        base_id="small",
        base_sha256=SHA,
        dataset_version="v",
        training_sha256=SHA,
        config_sha256=SHA,
        steps=1,
        verdict="pass",
        scores_sha256=SHA,
    )
    named = []
    for name, data in files.items():
        key = f"t/acme/jobs/1/{name}"
        await blobs.put(key, data)
        named.append(BlobFile(name=name, blob=key, sha256=sha(data), bytes=len(data)))
    return VersionSubmitted(model_id=MODEL, series="series", lineage=lineage, adapter=tuple(named))


def recorded(send: Send | None) -> RecordPublished:
    assert send is not None
    assert (send.stream, send.key) == ("model", "acme")
    assert isinstance(send.body, RecordPublished)
    return send.body


async def test_an_adapter_is_copied_with_its_lineage_and_repeats_are_equal() -> None:
    blobs = MemoryBlobs()
    version = await submitted(blobs, adapter())
    outcome = recorded(await publish(blobs).run(version, "acme"))
    assert outcome.failure is None
    assert {file.name for file in outcome.files} == {*adapter(), "lineage.json"}
    for file in outcome.files:
        body = blobs.bodies[file.blob]
        assert (sha(body), len(body)) == (file.sha256, file.bytes)
        assert file.blob == final_key("acme", MODEL, file.sha256, file.name)
    lineage = next(file for file in outcome.files if file.name == "lineage.json")
    assert json.loads(blobs.bodies[lineage.blob])["lineage"]["base_sha256"] == SHA
    assert recorded(await publish(blobs).run(version, "acme")) == outcome


async def test_a_pickle_is_refused_at_once() -> None:
    blobs = MemoryBlobs()
    version = await submitted(blobs, {**adapter(), "adapter_model.bin": b"x"})
    outcome = recorded(await publish(blobs).run(version, "acme"))
    assert outcome.files == ()
    assert outcome.failure is not None
    assert "adapter_model.bin" in outcome.failure


async def test_damaged_and_missing_bytes_are_tried_again_then_named() -> None:
    blobs = MemoryBlobs()
    version = await submitted(blobs, adapter())
    weights = "t/acme/jobs/1/adapter_model.safetensors"
    blobs.bodies[weights] = blobs.bodies[weights][:-1] + b"x"
    with pytest.raises(BlobCorrupt, match="adapter_model"):
        await publish(blobs).run(version, "acme")
    await blobs.delete("t/acme/jobs/1/adapter_config.json")
    with pytest.raises(BlobMissing):
        await publish(blobs).run(version, "acme")
    failed = recorded(publish(blobs).exhausted(version, "acme", "there is no blob"))
    assert failed.failure is not None
    assert "there is no blob" in failed.failure


async def test_a_deleted_file_is_erased_once() -> None:
    blobs = MemoryBlobs()
    await blobs.put("t/acme/x", b"1")
    for _ in range(2):
        assert await erase(blobs).run(EraseBlob(blob="t/acme/x"), "acme") is None
    assert not blobs.bodies


def header() -> Header:
    return Header(
        stream="model",
        partition=0,
        offset=0,
        at=0,
        key="acme",
        tenant="acme",
        seq=1,
        command_id="c",
        incarnation=0,
    )


async def test_rows_and_reactions_follow_the_version() -> None:
    blobs = MemoryBlobs()
    version = await submitted(blobs, adapter())
    (todo,) = project(header(), version)
    assert isinstance(todo, Todo)
    assert todo.kind == PUBLISH
    file = version.adapter[0]
    published = VersionPublished(
        model_id=MODEL, series="series", lineage=version.lineage, files=(file,), quarantined=False
    )
    assert project(header(), published) == (Done(PUBLISH, todo.id), Done(ERASE, file.blob))
    (send,) = react_model(header(), published)
    assert send.body == RecordRegistered(job_id="ftjob-1", model_id=MODEL)
    failed = VersionFailed(model_id=MODEL, job_id="ftjob-2", failure="taken")
    assert Done(PUBLISH, todo.id) not in project(header(), failed)
    (erasing,) = project(header(), VersionDeleted(model_id=MODEL, files=(file,)))
    assert isinstance(erasing, Todo)
    assert erasing.body == EraseBlob(blob=file.blob)


async def test_the_data_set_hears_of_a_lineage_before_its_job_can_end() -> None:
    version = await submitted(MemoryBlobs(), adapter())
    (keep,) = react_model(header(), version)
    job_id = version.lineage.job_id
    assert (keep.stream, keep.body) == ("dataset", KeepDataset(job_id=job_id, model_id=MODEL))
    failed = VersionFailed(model_id=MODEL, job_id=job_id, failure="no room")
    told, release = react_model(header(), failed)
    assert (release.stream, release.body) == ("dataset", ReleaseDataset(job_id=job_id))
    assert told.stream == "job"
    (gone,) = react_model(header(), VersionDeleted(model_id=MODEL, job_id=job_id))
    assert gone.body == ReleaseDataset(job_id=job_id)
    assert react_model(header(), VersionDeleted(model_id=MODEL)) == ()


def test_a_refused_base_reaches_its_job() -> None:
    refused = BaseRefused(job_id="j", code="base_changed", message="changed")
    (send,) = react_model(header(), refused)
    assert send.body == RecordBase(job_id="j", base=None, code="base_changed", message="changed")
