"""gzip and zstd, as streams that end with a named fault rather than with all of the memory."""

import io
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from gzip import BadGzipFile, GzipFile
from typing import Any, BinaryIO, Final
from zlib import error as ZlibError  # noqa: N812  # an exception, named like one

from typing_extensions import Buffer

from tunery.data.findings.finding import Note
from tunery.data.findings.limits import (
    MIB,
    SNIFF_BYTES,
    UNPACKED_BYTES_MAX,
    UNPACKED_FREE_BYTES,
    UNPACKED_RATIO_MAX,
)

MAGIC: Final = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
SEEKING: Final = (b"PAR1", b"ARROW1")  # formats whose index is at their end


class Unreadable(Exception):
    """The rest of the file cannot be read. `note` says why."""

    def __init__(self, note: Note) -> None:
        super().__init__(note.code)
        self.note = note


def kind(first: bytes) -> str | None:
    """How a file is compressed, told by its first bytes."""
    return next((name for magic, name in MAGIC.items() if first.startswith(magic)), None)


@contextmanager
def opened(raw: BinaryIO, first: bytes) -> Iterator[tuple[BinaryIO, bytes]]:
    """The bytes inside a compressed file as a stream at its beginning, and the first of them.

    The stream raises `Unreadable` where the file is damaged or a bomb.
    """
    with io.BufferedReader(_Unpacked(raw, kind(first)), MIB) as stream:
        inside = stream.peek(SNIFF_BYTES)[:SNIFF_BYTES]
        if not inside.startswith(SEEKING):
            yield stream, inside
            return
        with tempfile.TemporaryFile() as whole:
            shutil.copyfileobj(stream, whole, MIB)
            whole.seek(0)
            yield whole, inside


class _Unpacked(io.RawIOBase):
    """What comes out, weighed against what went in."""

    def __init__(self, raw: BinaryIO, packed: str | None) -> None:
        self._raw = raw
        self._inner: Any = GzipFile(fileobj=raw, mode="rb") if packed == "gzip" else _zstd(raw)
        self._out = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer)
        try:
            chunk = self._inner.read(min(len(view), MIB))
        except EOFError as error:
            raise Unreadable(Note("truncated_file", detail="gzip ends too early")) from error
        except (BadGzipFile, ZlibError) as error:
            raise Unreadable(Note("damaged_file", detail=f"gzip: {error}")) from error
        except OSError as error:
            if error.errno is not None:  # of the disk, not of the content
                raise
            code = "truncated_file" if "Truncated" in str(error) else "damaged_file"
            raise Unreadable(Note(code, detail=f"zstd: {error}")) from error
        self._out += len(chunk)
        allowed = max(UNPACKED_FREE_BYTES, UNPACKED_RATIO_MAX * self._raw.tell())
        if self._out > min(allowed, UNPACKED_BYTES_MAX):
            detail = f"{self._raw.tell():,} bytes became more than {self._out:,}"
            raise Unreadable(Note("decompression_bomb", detail=detail))
        view[: len(chunk)] = chunk
        return len(chunk)


def _zstd(raw: BinaryIO) -> Any:
    import pyarrow

    return pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, mode="r"), "zstd")
