"""Training under a lease while object storage is away: nothing that was paid for is thrown away."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from schemas import pool, training
from schemas.topics import POOL
from services.trainer.adapters.processes import ProcessGroups
from services.trainer.effect import storage
from services.trainer.effect.attempt import Tools
from services.trainer.effect.reports import Reports
from services.trainer.effect.training import Training
from services.trainer.settings import TrainerSettings
from tests.unit.services.trainer.domain.test_evolve import PREPARED, SHA, grant
from tunery.runtime.blobs.abstract import BlobsUnavailable, Stored
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.journal.codec import codec_of, decode_envelope
from tunery.runtime.memory_servers import MemoryServers, memory_servers

CONTENT = b"weights"
WORK = training.TrainWork(
    base_id="b",
    base_sha256=SHA,
    base_path="/b",
    prepared=replace(PREPARED, train_sha256=sha256(CONTENT).hexdigest(), validation_rows=0),
    hyper=training.HyperParameters(
        n_epochs=1,
        batch_size=1,
        learning_rate_ppb=200_000,
        rank=4,
        alpha=8,
        dropout_ppm=0,
        warmup_ppm=0,
        weight_decay_ppm=0,
        max_length=128,
        seed=1,
    ),
)


class Away(MemoryBlobs):
    """Refuses the first `outage` calls, or all of them."""

    def __init__(self, outage: int) -> None:
        super().__init__()
        self.outage = outage

    async def put_file(self, key: str, path: Path, *, sha256: str | None = None) -> Stored:
        if self.outage > 0:
            self.outage -= 1
            raise BlobsUnavailable("connection refused")
        return await super().put_file(key, path, sha256=sha256)


class Quick:
    """Time that passes only in sleeps."""

    def __init__(self) -> None:
        self.ms = 0

    def monotonic_ms(self) -> int:
        return self.ms

    def now_ms(self) -> int:
        return self.ms

    async def sleep(self, ms: int) -> None:
        self.ms += ms


async def under_lease(
    blobs: MemoryBlobs, folder: Path, checkpoints: tuple[training.Checkpoint, ...] = ()
) -> tuple[Training, MemoryServers]:
    made = await memory_servers(Quick())
    there = MemoryServers(made.log, blobs, made.keys, made.clock)
    runtime = there.runtime("trainer")
    machine = ProcessGroups(mark=str(folder))
    tools = Tools(runtime, machine, Reports(runtime, "default"), "a1")
    lease = grant(role="train", work=WORK, checkpoints=checkpoints)
    settings = TrainerSettings(id="a", pool="default", slots=1, work_dir=folder)
    return Training(lease, WORK, tools, settings), there


def checkpoint(folder: Path, step: int) -> dict[str, Any]:
    """The line of the training process, and the file it speaks of."""
    place = folder / f"step-{step}"
    place.mkdir()
    (place / "adapter.safetensors").write_bytes(CONTENT)
    file = {"name": "adapter.safetensors", "sha256": sha256(CONTENT).hexdigest()}
    return {
        "type": "checkpoint",
        "step": step,
        "epoch": 1.0,
        "dir": str(place),
        "manifest_sha256": f"{step:064x}",
        "tokens": step,
        "files": [file],
        "captured_monotonic_ms": 1,
    }


async def reported(there: MemoryServers) -> list[int]:
    """Steps of the checkpoints that the pool was told of."""
    reader = await there.log.reader(POOL.commands.name, {partition_of(b"default"): 0})
    records = await reader.poll(10, 100)
    await reader.close()
    told = [codec_of(POOL).command(decode_envelope(record.value)) for record in records]
    return [one.checkpoint.step for one in told if isinstance(one, pool.ReportCheckpoint)]


async def test_a_short_outage_of_storage_delays_a_checkpoint(tmp_path: Path) -> None:
    training, there = await under_lease(Away(3), tmp_path)
    await training.heard(checkpoint(tmp_path, 5), 1_000)
    assert await reported(there) == [5]
    assert list(there.blobs.bodies.values()) == [CONTENT]


async def test_a_checkpoint_that_training_has_replaced_is_left_out(tmp_path: Path) -> None:
    training, there = await under_lease(MemoryBlobs(), tmp_path)
    gone, newer = checkpoint(tmp_path, 5), checkpoint(tmp_path, 10)
    (tmp_path / "step-5" / "adapter.safetensors").unlink()
    await training.heard(gone, 1_000)
    await training.heard(newer, 2_000)
    assert await reported(there) == [10]


async def test_an_outage_without_end_is_told(tmp_path: Path) -> None:
    training, there = await under_lease(Away(1_000_000), tmp_path)
    with pytest.raises(BlobsUnavailable):
        await training.heard(checkpoint(tmp_path, 5), 1_000)
    assert there.clock.monotonic_ms() >= storage.OUTAGE_MS_MAX


def kept(manifest: str) -> training.Checkpoint:
    """A checkpoint of step 7, as a grant names it."""
    file = training.BlobFile(
        name="manifest.json",
        blob=f"t/acme/{manifest}",
        sha256=sha256(CONTENT).hexdigest(),
        bytes=len(CONTENT),
    )
    return training.Checkpoint(
        attempt=1,
        step=7,
        epoch_ppm=1,
        tokens=7,
        manifest_sha256=manifest,
        files=(file,),
        captured_ms=1,
    )


async def test_of_two_checkpoints_of_one_step_the_whole_one_is_used(tmp_path: Path) -> None:
    damaged, whole, blobs = kept("a" * 64), kept("b" * 64), MemoryBlobs()
    await blobs.put(WORK.prepared.train_blob, CONTENT)
    await blobs.put(damaged.files[0].blob, b"damaged")
    await blobs.put(whole.files[0].blob, CONTENT)
    training, _ = await under_lease(blobs, tmp_path, (damaged, whole))
    await training.prepare(tmp_path)
    (resume,) = msgspec.json.decode((tmp_path / "spec.json").read_bytes())["resume"]
    assert resume["manifest_sha256"] == whole.manifest_sha256
    assert (Path(resume["dir"]) / "manifest.json").read_bytes() == CONTENT
    passed_over = {**resume, "reason": "of another base"}
    line = {"type": "started", "loaded_manifest": None, "resumed_from_step": 0, "total_steps": 9}
    started = await training.heard({**line, "skipped": [passed_over]}, 0)
    assert started is not None
    assert [skip.manifest_sha256[0] for skip in started.skipped] == ["a", "b"]
