"""Blobs of an attempt: outages are waited out, up to a limit."""

from hashlib import sha256
from pathlib import Path

import pytest

from services.trainer.effect.program import OUTAGE_MS_MAX, fetch, upload
from tests.unit.services.trainer.domain.test_evolve import grant
from tests.unit.services.trainer.effect.outages import SleepClock, UnavailableBlobs
from tunery.platform.memory_servers import MemoryServers, memory_servers
from tunery.platform.ports import Runtime
from tunery.runtime.blobs.abstract import BlobCorrupt, BlobMissing, BlobsUnavailable

CONTENT = b"content"
SHA256 = sha256(CONTENT).hexdigest()


async def runtime_with(blobs: UnavailableBlobs) -> Runtime:
    servers = await memory_servers(SleepClock())
    return MemoryServers(servers.log, blobs, servers.keys, servers.clock).runtime("trainer")


async def test_a_file_survives_short_outages_of_upload_and_fetch(tmp_path: Path) -> None:
    blobs = UnavailableBlobs(2)
    runtime = await runtime_with(blobs)
    (tmp_path / "a").write_bytes(CONTENT)
    stored = await upload(runtime, grant(), "scores", tmp_path / "a", SHA256)
    assert (stored.sha256, stored.bytes) == (SHA256, len(CONTENT))
    blobs.outage = 3
    await fetch(runtime, stored.key, tmp_path / "b", SHA256)
    assert (tmp_path / "b").read_bytes() == CONTENT


async def test_keys_name_the_job_the_attempt_and_the_content(tmp_path: Path) -> None:
    runtime = await runtime_with(UnavailableBlobs(0))
    (tmp_path / "a").write_bytes(CONTENT)
    stored = await upload(runtime, grant(), "scores", tmp_path / "a", SHA256)
    assert "acme" in stored.key
    assert "scores/job1/1" in stored.key
    assert SHA256 in stored.key


async def test_an_outage_without_end_is_an_error_after_the_limit(tmp_path: Path) -> None:
    runtime = await runtime_with(UnavailableBlobs(1_000_000))
    with pytest.raises(BlobsUnavailable):
        await fetch(runtime, "t/acme/x", tmp_path / "x", SHA256)
    assert OUTAGE_MS_MAX <= runtime.clock.monotonic_ms() <= 2 * OUTAGE_MS_MAX


async def test_missing_and_damaged_blobs_are_not_tried_again(tmp_path: Path) -> None:
    blobs = UnavailableBlobs(0)
    runtime = await runtime_with(blobs)
    with pytest.raises(BlobMissing):
        await fetch(runtime, "t/acme/x", tmp_path / "x", SHA256)
    await blobs.put("t/acme/x", b"damaged")
    with pytest.raises(BlobCorrupt):
        await fetch(runtime, "t/acme/x", tmp_path / "x", SHA256)
    assert runtime.clock.monotonic_ms() == 0
