"""Reads gzip and zstd files as streams, with limits that stop decompression bombs."""

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
INDEXED_FORMATS: Final = (b"PAR1", b"ARROW1")  # formats whose index is at their end


class FileReadError(Exception):
    """Raised when the rest of a file cannot be read. `note` says why."""

    def __init__(self, note: Note) -> None:
        super().__init__(note.code)
        self.note = note


def compression_of(first: bytes) -> str | None:
    """The compression of a file, recognised by its first bytes; None without compression."""
    return next((name for magic, name in MAGIC.items() if first.startswith(magic)), None)


@contextmanager
def open_compressed(raw: BinaryIO, first: bytes) -> Iterator[tuple[BinaryIO, bytes]]:
    """Open the content of a compressed file as a stream; yields the stream and its first bytes.

    Reading raises `FileReadError` when the file is damaged, or a decompression bomb.
    """
    with io.BufferedReader(_Decompressed(raw, compression_of(first)), MIB) as stream:
        inside = stream.peek(SNIFF_BYTES)[:SNIFF_BYTES]
        if not inside.startswith(INDEXED_FORMATS):
            yield stream, inside
            return
        with tempfile.TemporaryFile() as whole:
            shutil.copyfileobj(stream, whole, MIB)
            whole.seek(0)
            yield whole, inside


class _Decompressed(io.RawIOBase):
    """The decompressed stream; compares the bytes it returns with the bytes it has read."""

    def __init__(self, raw: BinaryIO, compression: str | None) -> None:
        self._raw = raw
        is_gzip = compression == "gzip"
        self._inner: Any = GzipFile(fileobj=raw, mode="rb") if is_gzip else _open_zstd(raw)
        self._out = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer)
        try:
            chunk = self._inner.read(min(len(view), MIB))
        except EOFError as error:
            raise FileReadError(Note("truncated_file", detail="gzip ends too early")) from error
        except (BadGzipFile, ZlibError) as error:
            raise FileReadError(Note("damaged_file", detail=f"gzip: {error}")) from error
        except OSError as error:
            if error.errno is not None:  # an error of the disk, not of the content
                raise
            code = "truncated_file" if "Truncated" in str(error) else "damaged_file"
            raise FileReadError(Note(code, detail=f"zstd: {error}")) from error
        self._out += len(chunk)
        allowed = max(UNPACKED_FREE_BYTES, UNPACKED_RATIO_MAX * self._raw.tell())
        if self._out > min(allowed, UNPACKED_BYTES_MAX):
            detail = f"{self._raw.tell():,} bytes expand to more than {self._out:,}"
            raise FileReadError(Note("decompression_bomb", detail=detail))
        view[: len(chunk)] = chunk
        return len(chunk)


def _open_zstd(raw: BinaryIO) -> Any:
    import pyarrow

    source = pyarrow.PythonFile(_KeptOpen(raw), mode="r")
    return pyarrow.CompressedInputStream(source, "zstd")


class _KeptOpen:
    """Reader for pyarrow that ignores `close`: pyarrow closes its source after some errors."""

    closed = False

    def __init__(self, raw: BinaryIO) -> None:
        self.read = raw.read

    def close(self) -> None:
        pass
