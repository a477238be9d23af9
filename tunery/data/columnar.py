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
    ROW_BYTES_MAX,
    ROWS_MAX,
    UNPACKED_FREE_BYTES,
    UNPACKED_RATIO_MAX,
)
from tunery.data.rows import Row

PATTERNS: Final = ("*.arrow", "*.parquet", "data/*.parquet", "*/*.parquet")


def parquet(stream: BinaryIO) -> Iterator[Row | Finding]:
    """Rows of a Parquet file, from 1. Raises `Unreadable` where it is damaged."""
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile, read_metadata

    try:
        with _seekable(stream) as whole:
            meta = read_metadata(whole)
            if meta.num_rows > ROWS_MAX:
                detail = f"{meta.num_rows:,}, at most {ROWS_MAX:,}"
                raise Unreadable(Note("too_many_rows", detail=detail))
            sizes = (meta.row_group(group).total_byte_size for group in range(meta.num_row_groups))
            if (largest := max(sizes, default=0)) > COLUMNAR_GROUP_BYTES_MAX:
                detail = f"a row group of {largest:,} bytes"
                raise Unreadable(Note("decompression_bomb", detail=detail))
            columns = [meta.schema.column(number) for number in range(meta.num_columns)]
            # A value that stands in many rows stays one value until its row is looked at. Arrow
            # cannot do that inside lists and structs.
            flat = (one for one in columns if one.path == one.name and not one.max_repetition_level)
            texts = [one.path for one in flat if one.physical_type == "BYTE_ARRAY"]
            file = ParquetFile(whole, pre_buffer=False, read_dictionary=texts)
            yield from _rows(file.iter_batches(COLUMNAR_ROWS, use_threads=False), whole.size())
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
                    batches = (reader.get_batch(number) for number in numbers)
                    yield from _rows(batches, whole.size())
            else:
                with ipc.open_stream(whole) as stream_reader:
                    yield from _rows(stream_reader, whole.size())
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


def _rows(batches: Iterator[Any], file_bytes: int) -> Iterator[Row | Finding]:
    """Rows of record batches; raises `Unreadable` when they hold far more than the file could."""
    number = unpacked = 0
    allowed = max(UNPACKED_FREE_BYTES, UNPACKED_RATIO_MAX * file_bytes)
    for batch in batches:
        batch.validate(
            full=True
        )  # offsets and text out of a damaged file would be followed blindly
        todo = [batch.slice(at, COLUMNAR_ROWS) for at in range(0, batch.num_rows, COLUMNAR_ROWS)]
        todo.reverse()
        while todo:
            some = todo.pop()
            size = sum(_expanded(column) for column in some.columns)
            if size > ROW_BYTES_MAX and some.num_rows > 1:
                half = some.num_rows // 2
                todo += (some.slice(half), some.slice(0, half))
                continue
            unpacked += size
            if unpacked > allowed:
                detail = f"{file_bytes:,} bytes became more than {unpacked:,}"
                raise Unreadable(Note("decompression_bomb", detail=detail))
            if size > ROW_BYTES_MAX:
                number += 1
                yield Note("row_too_large").at(number, None)
                continue
            for cells in some.to_pylist():
                number += 1
                yield Row(number, None, cells)


def _expanded(array: Any) -> int:
    """Bytes of an array's values, with each repeat of a shared value counted."""
    from pyarrow import compute, types

    kind = array.type
    if types.is_dictionary(kind):
        if not (types.is_string(kind.value_type) or types.is_binary(kind.value_type)):
            return int(array.nbytes) + len(array) * int(array.dictionary.nbytes)
        lengths = compute.binary_length(array.dictionary).take(array.indices)
        return int(compute.sum(lengths).as_py() or 0)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return int(_expanded(array.flatten()))
    if types.is_struct(kind):
        return sum(_expanded(child) for child in array.flatten())
    return int(array.nbytes)


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
