import pytest

from tests.contract.blobs_suite import BlobsSuite
from tunery.runtime.blobs.memory import MemoryBlobs


@pytest.fixture
def blobs() -> MemoryBlobs:
    return MemoryBlobs()


class TestMemoryBlobs(BlobsSuite):
    """The suite, in memory."""
