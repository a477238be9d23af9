"""Key stores need no server: the one in memory and the one in a folder keep the same contract."""

from pathlib import Path

import pytest

from tests.contract.key_store_suite import KeyStoreSuite
from tunery.platform.seal.abstract import KeyStore
from tunery.platform.seal.directory import DirectoryKeyStore
from tunery.platform.seal.memory import MemoryKeyStore
from tunery.platform.seal.roots import Roots, create_root


class TestMemoryKeyStore(KeyStoreSuite):
    """The suite, in memory."""

    @pytest.fixture
    def keys(self) -> KeyStore:
        return MemoryKeyStore()


class TestDirectoryKeyStore(KeyStoreSuite):
    """The suite, over a folder."""

    @pytest.fixture
    def keys(self, tmp_path: Path) -> KeyStore:
        return DirectoryKeyStore(tmp_path / "keys")


class TestWrappedKeyStore(KeyStoreSuite):
    """Keys as files that a root key wraps."""

    @pytest.fixture
    def keys(self, tmp_path: Path) -> KeyStore:
        create_root(tmp_path / "roots")
        return DirectoryKeyStore(tmp_path / "keys", Roots(tmp_path / "roots"))
