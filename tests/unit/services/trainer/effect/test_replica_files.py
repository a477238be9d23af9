"""Files of adapters for a process without keys."""

from pathlib import Path

import pytest

from services.engine.adapters.relayed_files import RelayedFiles
from tests.unit.services.trainer.effect.test_evaluation import CONTENT, SHA256
from tests.unit.services.trainer.effect.test_serving import Replica, replica
from tunery.platform.local_socket import connect_to
from tunery.runtime.blobs.abstract import BlobError, blob_key

__all__ = ["replica"]  # a fixture


async def test_the_process_gets_files_of_its_own_tenant_alone(replica: Replica) -> None:
    files = RelayedFiles(Path(replica.spec.files_socket))
    key = blob_key(replica.program.grant.tenant, "adapters/j/1", SHA256)
    other = blob_key("beta", "adapters/j/1", SHA256)
    for name in (key, other):
        await replica.servers.blobs.put(name, CONTENT)
    target = replica.folder / "file"
    await files.get_file(key, target, sha256=SHA256)
    assert target.read_bytes() == CONTENT
    with pytest.raises(BlobError, match="not of this tenant"):
        await files.get_file(other, target, sha256=SHA256)
    with pytest.raises(BlobError, match="no blob"):
        await files.get_file(f"{key}x", target, sha256=SHA256)


async def test_bad_input_a_line_that_asks_for_nothing_ends_its_connection_alone(
    replica: Replica,
) -> None:
    connection = connect_to(Path(replica.spec.files_socket))
    connection.sendall(b"nonsense\n")
    connection.setblocking(False)
    files = RelayedFiles(Path(replica.spec.files_socket))
    with pytest.raises(BlobError):
        await files.get_file("t/none", replica.folder / "file", sha256=SHA256)
    connection.close()
