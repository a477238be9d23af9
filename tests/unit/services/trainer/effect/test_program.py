"""The outline that programs of both roles share: spec, arguments, blobs of the attempt."""

import hashlib
from hashlib import sha256
from pathlib import Path

import pytest

from schemas.telemetry import Progress
from schemas.training import AttemptStart, EvalResult, Result
from services.trainer.adapters.processes import ProcessGroups
from services.trainer.effect.program import OUTAGE_MS_MAX, Program, Tools, fetch, upload
from services.trainer.effect.reports import Reports
from services.trainer.settings import TrainerSettings
from tests.unit.services.trainer.domain.test_evolve import grant
from tests.unit.services.trainer.effect.outages import SleepClock, UnavailableBlobs
from tunery.confinement.taking import NotTaken
from tunery.platform.memory_servers import MemoryServers, memory_servers
from tunery.platform.ports import Runtime
from tunery.runtime.blobs.abstract import BlobCorrupt, BlobMissing, BlobsUnavailable
from tunery.work.codec import decode_train_spec
from tunery.work.events import AnyWorkEvent, FileDigest
from tunery.work.spec import Hyper, TrainSpec

DATA = b"adapter"
SHA256 = hashlib.sha256(DATA).hexdigest()
HYPER = Hyper(
    n_epochs=1,
    batch_size=1,
    learning_rate=0.1,
    rank=4,
    alpha=8,
    dropout=0.0,
    warmup=0.0,
    weight_decay=0.0,
    max_length=128,
    seed=1,
)


def file(name: str) -> FileDigest:
    return FileDigest(name=name, sha256=SHA256, bytes=len(DATA))


class Outline(Program):
    """A program that fetches nothing."""

    module = "some.module"

    async def write_inputs(self, folder: Path) -> TrainSpec:
        return TrainSpec(
            base_dir="/b",
            base_id="b",
            base_sha256=SHA256,
            train_shards=("train",),
            valid_shards=(),
            out_dir=str(folder / "out"),
            hyper=HYPER,
        )

    async def handle(self, event: AnyWorkEvent) -> AttemptStart | None:
        raise NotImplementedError

    async def result(self) -> Result:
        scores = await self.upload("scores", Path("/"), file("x"))
        return EvalResult(scores=scores)


async def program(folder: Path) -> tuple[Outline, MemoryServers]:
    there = await memory_servers()
    runtime = there.runtime("trainer")
    reports = Reports(runtime, "default")
    tools = Tools(runtime, ProcessGroups(mark=str(folder)), reports, "a1", lambda: None)
    settings = TrainerSettings(id="a", pool="default", slots=1, work_dir=folder)
    outline = Outline(grant(), tools, settings)
    outline.folder = folder
    return outline, there


async def test_the_interpreter_is_started_with_the_module_and_its_spec(tmp_path: Path) -> None:
    outline, _ = await program(tmp_path)
    arguments = await outline.prepare(tmp_path)
    assert arguments == ("-m", "some.module", str(tmp_path / "spec.json"))
    spec = decode_train_spec((tmp_path / "spec.json").read_bytes())
    assert spec == await outline.write_inputs(tmp_path)


async def test_a_file_is_stored_under_the_attempt_and_named_by_its_content(tmp_path: Path) -> None:
    outline, there = await program(tmp_path)
    (tmp_path / "adapter.bin").write_bytes(DATA)
    stored = await outline.upload("adapters", tmp_path, file("adapter.bin"))
    assert (stored.name, stored.sha256, stored.bytes) == ("adapter.bin", SHA256, len(DATA))
    assert there.blobs.bodies == {stored.blob: DATA}
    for part in ("acme", f"adapters/{outline.grant.job_id}/{outline.grant.attempt}", SHA256):
        assert part in stored.blob
    await outline.fetch(stored.blob, tmp_path / "again", SHA256)
    assert (tmp_path / "again").read_bytes() == DATA


async def test_other_bytes_than_the_process_named_are_not_stored(tmp_path: Path) -> None:
    outline, there = await program(tmp_path)
    (tmp_path / "adapter.bin").write_bytes(DATA + b"!")
    with pytest.raises(BlobCorrupt):
        await outline.upload("adapters", tmp_path, file("adapter.bin"))
    with pytest.raises(FileNotFoundError):
        await outline.upload("adapters", tmp_path, file("missing"))
    assert there.blobs.bodies == {}


async def test_security_h1_what_is_no_file_of_the_process_is_not_stored(tmp_path: Path) -> None:
    """A process that names the agent's own files, or links to them, gets none of them stored."""
    outline, there = await program(tmp_path / "lease")
    (tmp_path / "lease").mkdir()
    (tmp_path / "secret").write_bytes(DATA)
    (tmp_path / "lease" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "lease" / "folder").symlink_to(tmp_path)
    lease = tmp_path / "lease"
    for folder, name in (
        (tmp_path, "secret"),
        (lease, "../secret"),
        (lease, "link"),
        (lease / "folder", "secret"),
        (lease, "folder/secret"),
        (Path("/"), "etc/passwd"),
    ):
        with pytest.raises(NotTaken):
            await outline.upload("adapters", folder, file(name))
    assert there.blobs.bodies == {}


async def test_missing_inputs_are_named(tmp_path: Path) -> None:
    outline, _ = await program(tmp_path)
    with pytest.raises(BlobMissing):
        await outline.fetch("t/acme/no", tmp_path / "no", SHA256)


async def test_telemetry_of_a_lease_goes_to_the_log(tmp_path: Path) -> None:
    outline, there = await program(tmp_path)
    before = _records(there)
    record = Progress(tenant="acme", job_id="job1", attempt=1, stage="evaluating", done_ppm=1)
    await outline.report(record)
    assert _records(there) == before + 1


def _records(there: MemoryServers) -> int:
    return sum(len(p.records) for topic in there.log.topics.values() for p in topic)


CONTENT = b"content"
CONTENT_SHA256 = sha256(CONTENT).hexdigest()


async def runtime_with(blobs: UnavailableBlobs) -> Runtime:
    servers = await memory_servers(SleepClock())
    return MemoryServers(servers.log, blobs, servers.keys, servers.clock).runtime("trainer")


async def test_a_file_survives_short_outages_of_upload_and_fetch(tmp_path: Path) -> None:
    blobs = UnavailableBlobs(2)
    runtime = await runtime_with(blobs)
    (tmp_path / "a").write_bytes(CONTENT)
    stored = await upload(runtime, grant(), "scores", tmp_path / "a", CONTENT_SHA256)
    assert (stored.sha256, stored.bytes) == (CONTENT_SHA256, len(CONTENT))
    blobs.outage = 3
    await fetch(runtime, stored.key, tmp_path / "b", CONTENT_SHA256)
    assert (tmp_path / "b").read_bytes() == CONTENT


async def test_keys_name_the_job_the_attempt_and_the_content(tmp_path: Path) -> None:
    runtime = await runtime_with(UnavailableBlobs(0))
    (tmp_path / "a").write_bytes(CONTENT)
    stored = await upload(runtime, grant(), "scores", tmp_path / "a", CONTENT_SHA256)
    assert "acme" in stored.key
    assert "scores/job1/1" in stored.key
    assert CONTENT_SHA256 in stored.key


async def test_an_outage_without_end_is_an_error_after_the_limit(tmp_path: Path) -> None:
    runtime = await runtime_with(UnavailableBlobs(1_000_000))
    with pytest.raises(BlobsUnavailable):
        await fetch(runtime, "t/acme/x", tmp_path / "x", CONTENT_SHA256)
    assert OUTAGE_MS_MAX <= runtime.clock.monotonic_ms() <= 2 * OUTAGE_MS_MAX


async def test_missing_and_damaged_blobs_are_not_tried_again(tmp_path: Path) -> None:
    blobs = UnavailableBlobs(0)
    runtime = await runtime_with(blobs)
    with pytest.raises(BlobMissing):
        await fetch(runtime, "t/acme/x", tmp_path / "x", CONTENT_SHA256)
    await blobs.put("t/acme/x", b"damaged")
    with pytest.raises(BlobCorrupt):
        await fetch(runtime, "t/acme/x", tmp_path / "x", CONTENT_SHA256)
    assert runtime.clock.monotonic_ms() == 0
