"""Files that an agent fetches: the agent's side is in tests of `services.trainer`."""

import asyncio
from pathlib import Path

import pytest

from services.engine.adapters.relayed_files import RelayedFiles
from tunery.platform.local_socket import listen_at
from tunery.runtime.blobs.abstract import BlobError
from tunery.work.replica import FileFetched, FileRefused, encode_file_line


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (encode_file_line(FileRefused("no blob a")), "no blob a"),
        (b"", "fetches no files"),
        (b"nonsense\n", "fetches no files"),
        (b"x" * 20_000, "fetches no files"),
    ],
)
async def test_an_agent_that_has_no_file(tmp_path: Path, reply: bytes, problem: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(reply)
        writer.close()

    path = tmp_path / "files.socket"
    async with await asyncio.start_unix_server(answer, sock=listen_at(path)):
        with pytest.raises(BlobError, match=problem):
            await RelayedFiles(path).get_file("a", tmp_path / "file", sha256="ab" * 32)


async def test_a_fetched_file_is_moved(tmp_path: Path) -> None:
    fetched, target = tmp_path / "1", tmp_path / "adapter"
    fetched.write_bytes(b"content")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(encode_file_line(FileFetched(str(fetched))))
        writer.close()

    path = tmp_path / "files.socket"
    async with await asyncio.start_unix_server(answer, sock=listen_at(path)):
        await RelayedFiles(path).get_file("a", target)
    assert (target.read_bytes(), fetched.exists()) == (b"content", False)
    with pytest.raises(OSError, match="No such file"):
        await RelayedFiles(tmp_path / "none").get_file("a", target)
