import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from tests.contract.blobs_suite import BlobsSuite
from tunery.local.stack import Stack
from tunery.platform.blobs.encrypted import EncryptedBlobs
from tunery.platform.blobs.path_keys import TenantPathKeys
from tunery.platform.blobs.s3 import S3Blobs, S3Settings
from tunery.platform.seal.memory import MemoryKeyStore
from tunery.runtime.blobs.abstract import BlobCorrupt, Blobs, BlobsUnavailable

FAIL_S_MAX = 180


def settings_of(servers: Stack) -> S3Settings:
    return S3Settings(
        servers.s3_endpoint, servers.s3_access_key, servers.s3_secret_key, servers.s3_bucket
    )


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def blobs(servers: Stack) -> AsyncIterator[S3Blobs]:
    blobs = S3Blobs(settings_of(servers))
    await blobs.prepare()
    await blobs.prepare()
    yield blobs
    await blobs.close()


class TestEncryptedS3Blobs(BlobsSuite):
    """The suite, encrypted above the real storage."""

    @pytest.fixture
    def blobs(self, blobs: S3Blobs) -> Blobs:
        return EncryptedBlobs(blobs, TenantPathKeys(MemoryKeyStore()))


class TestS3Blobs(BlobsSuite):
    """The suite, against the real storage."""

    async def test_a_missing_bucket_is_created(self, servers: Stack) -> None:
        other = S3Blobs(replace(settings_of(servers), bucket="another-bucket"))
        await other.prepare()
        await other.put("t/a/b", b"x")
        assert await other.get("t/a/b") == b"x"
        await other.close()

    async def test_unreachable_storage_fails_fast_with_a_clear_error(self, servers: Stack) -> None:
        unreachable = S3Blobs(replace(settings_of(servers), endpoint="http://127.0.0.1:1"))
        async with asyncio.timeout(FAIL_S_MAX):
            with pytest.raises(BlobsUnavailable, match="S3 cannot be used"):
                await unreachable.put("t/a/b", b"x")
            with pytest.raises(BlobsUnavailable):
                await unreachable.get("t/a/b")
        await unreachable.close()

    async def test_a_wrong_secret_is_named_in_the_error(self, servers: Stack) -> None:
        wrong = S3Blobs(replace(settings_of(servers), secret_key="wrong-wrong-wrong"))
        with pytest.raises(BlobsUnavailable, match="SignatureDoesNotMatch"):
            await wrong.put("t/a/b", b"x")
        await wrong.close()

    async def test_a_bit_that_flipped_on_the_disk_is_damage_and_no_outage(
        self, servers: Stack, blobs: S3Blobs
    ) -> None:
        """A job that waits for the outage to end would wait for ever."""
        await blobs.put("t/a/flipped", b"content")
        path = servers.folders.server("s3") / "objects" / servers.s3_bucket / "t/a/flipped"
        path.write_bytes(b"cOntent")
        with pytest.raises(BlobCorrupt):
            await blobs.get("t/a/flipped")
