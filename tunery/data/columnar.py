"""Parquet and Arrow, alone or in a folder that `datasets` saved: rows as objects."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final

from tunery.data.compressed import Unreadable
from tunery.data.findings import Finding, Note
from tunery.data.limits import (
    COLUMNAR_GROUP_BYTES_MAX,
    COLUMNAR_ROWS,
    FOLDER_FILES_MAX,
    MIB,
    ROWS_MAX,
)
from tunery.data.rows import Row

PATTERNS: Final = ("*.arrow", "*.parquet", "data/*.parquet", "*/*.parquet")


def parquet(stream: BinaryIO) -> Iterator[Row | Finding]:
    """Rows of a Parquet file, from 1. Raises `Unreadable` where it is damaged."""
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with _seekable(stream) as whole, ParquetFile(whole, pre_buffer=False) as file:
            meta = file.metadata
            if meta.num_rows > ROWS_MAX:
                detail = f"{meta.num_rows:,}, at most {ROWS_MAX:,}"
                raise Unreadable(Note("too_many_rows", detail=detail))
            sizes = (meta.row_group(group).total_byte_size for group in range(meta.num_row_groups))
            if (largest := max(sizes, default=0)) > COLUMNAR_GROUP_BYTES_MAX:
                detail = f"a row group of {largest:,} bytes"
                raise Unreadable(Note("decompression_bomb", detail=detail))
            yield from _rows(file.iter_batches(batch_size=COLUMNAR_ROWS, use_threads=False))
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        raise _unreadable(error, "Parquet") from error


def arrow(stream: BinaryIO) -> Iterator[Row | Finding]:
    """Rows of an Arrow file or stream, from 1. Raises `Unreadable` where it is damaged."""
    from pyarrow import ArrowException, ipc

    try:
        with _seekable(stream) as whole:
            is_file = whole.read(6) == b"ARROW1"
            whole.seek(0)
            if is_file:
                with ipc.open_file(whole) as reader:
                    numbers = range(reader.num_record_batches)
                    yield from _rows(reader.get_batch(number) for number in numbers)
            else:
                with ipc.open_stream(whole) as stream_reader:
                    yield from _rows(stream_reader)
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        raise _unreadable(error, "Arrow") from error


class Folder:
    """A data set as `datasets` saves it, or as hubs keep it: Arrow or Parquet files of one split.

    Rows count on from file to file. Where there are splits it is `train`, or the only one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.bytes_read = 0

    def rows(self) -> Iterator[Row | Finding]:
        files = _files(_split(self._path))
        if not files or len(files) > FOLDER_FILES_MAX:
            detail = f"the folder has {len(files) or 'no'} Arrow or Parquet files"
            raise Unreadable(Note("unsupported_format", detail=detail))
        number = 0
        for item in chain.from_iterable(map(self._file, files)):
            if isinstance(item, Row):
                number += 1
                item = Row(number, None, item.content)  # noqa: PLW2901  # numbered anew
            yield item

    def _file(self, path: Path) -> Iterator[Row | Finding]:
        read: Callable[[BinaryIO], Iterator[Row | Finding]]
        with path.open("rb") as stream:
            read = parquet if stream.read(4) == b"PAR1" else arrow
            stream.seek(0)
            yield from read(stream)
        self.bytes_read += path.stat().st_size


def _split(path: Path) -> Path:
    """The folder of the rows to learn from."""
    listing = path / "dataset_dict.json"
    if not listing.is_file():
        return path
    try:
        splits = json.loads(listing.read_text(encoding="utf-8"))["splits"]
        found = path / ("train" if "train" in splits else splits[0])
    except (ValueError, KeyError, IndexError, TypeError) as error:
        note = Note("unsupported_format", detail="dataset_dict.json names no split")
        raise Unreadable(note) from error
    return found if found.parent == path else path


def _files(path: Path) -> list[Path]:
    """The files of a split, in the order that `state.json` gives or else by name."""
    state = path / "state.json"
    if state.is_file():
        try:
            listed = json.loads(state.read_text(encoding="utf-8"))["_data_files"]
            return [path / Path(one["filename"]).name for one in listed]
        except (ValueError, KeyError, TypeError) as error:
            note = Note("unsupported_format", detail="state.json names no files")
            raise Unreadable(note) from error
    for pattern in PATTERNS:
        found = sorted(path.glob(pattern))
        train = [one for one in found if one.name.startswith("train")]
        if found:
            return train or found
    return []


def _rows(batches: Iterator[Any]) -> Iterator[Row]:
    number = 0
    for batch in batches:
        batch.validate(
            full=True
        )  # offsets and text out of a damaged file would be followed blindly
        for start in range(0, batch.num_rows, COLUMNAR_ROWS):
            for cells in batch.slice(start, COLUMNAR_ROWS).to_pylist():
                number += 1
                yield Row(number, None, cells)


@contextmanager
def _seekable(stream: BinaryIO) -> Iterator[Any]:
    """The stream, or a file with its bytes when it cannot go back; left open, and at its end."""
    import pyarrow

    with ExitStack() as stack:
        whole = stream
        if not stream.seekable():
            whole = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(stream, whole, MIB)
            whole.seek(0)
        yield pyarrow.PythonFile(_Lent(whole), mode="r")
        whole.seek(0, os.SEEK_END)


class _Lent:
    """A stream whose borrower cannot close it."""

    closed = False

    def __init__(self, stream: BinaryIO) -> None:
        self.read, self.seek, self.tell = stream.read, stream.seek, stream.tell

    def close(self) -> None:
        """Left to the owner."""


def _unreadable(error: Exception, what: str) -> Exception:
    """Damage by name; the disk's own errors stay what they are."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    return Unreadable(Note("damaged_file", detail=f"{what}: {str(error)[:200]}"))
