"""Reads Parquet and Arrow files, alone or in a folder that `datasets` saved, row by row."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final

from tunery.data.containers.compression import FileReadError
from tunery.data.containers.row import Row
from tunery.data.findings.finding import Finding, Note
from tunery.data.findings.limits import (
    COLUMNAR_BATCH_BYTES,
    COLUMNAR_GROUP_BYTES_MAX,
    COLUMNAR_READ_ROWS,
    COLUMNAR_ROWS,
    FOLDER_FILES_MAX,
    MIB,
    ROW_BYTES_MAX,
    ROWS_MAX,
    UNPACKED_FREE_BYTES,
    UNPACKED_RATIO_MAX,
)

#: text encodings of Parquet whose repeated values Arrow can keep shared; all encodings that share
SHAREABLE: Final = {"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}
SHARING: Final = {"PLAIN_DICTIONARY", "RLE_DICTIONARY", "DELTA_BYTE_ARRAY"}
#: bytes of one value by type; of a text, bytes of its index
VALUE_BYTES: Final = {
    "BOOLEAN": 1,
    "INT32": 4,
    "INT64": 8,
    "INT96": 8,
    "FLOAT": 4,
    "DOUBLE": 8,
    "BYTE_ARRAY": 4,
}
PATTERNS: Final = ("*.arrow", "*.parquet", "data/*.parquet", "*/*.parquet")


def parquet(stream: BinaryIO) -> Iterator[Row | Finding]:
    """Yield the rows of a Parquet file, numbered from 1.

    Raises `FileReadError` when the file is damaged, has too many rows or is a decompression bomb.
    """
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile, read_metadata

    try:
        with _seekable(stream) as whole:
            meta = read_metadata(whole)
            if meta.num_rows > ROWS_MAX:
                detail = f"{meta.num_rows:,}, at most {ROWS_MAX:,}"
                raise FileReadError(Note("too_many_rows", detail=detail))
            shared, rows = _plan_reading(meta, whole.size())
            file = ParquetFile(whole, pre_buffer=False, read_dictionary=shared)
            # one row group at a time: Arrow cannot join the shared values of several inside lists
            groups = (
                file.iter_batches(rows, row_groups=[group], use_threads=False)
                for group in range(meta.num_row_groups)
            )
            yield from _rows(chain.from_iterable(groups), whole.size())
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        raise _unreadable(error, "Parquet") from error


def _plan_reading(meta: Any, file_bytes: int) -> tuple[list[str], int]:
    """Decide which columns to read with shared values, and how many rows to read together.

    Most encodings store a value that many rows have only once, and Arrow can keep some of them
    shared until a row is read. With the others each value may be as large as the whole column, so
    few rows are read together, and lists, whose length is unknown, must be small.

    Raises `FileReadError` for a row group that may become too large.
    """
    allowed = _allowed(file_bytes)
    opaque: dict[str, int] = {}  # by column, the bytes that a value may have beyond its own
    texts: dict[str, None] = {}
    row_bytes = 1
    for number in range(meta.num_row_groups):
        group = meta.row_group(number)
        if group.total_byte_size > COLUMNAR_GROUP_BYTES_MAX:
            raise _bomb_error(f"a row group of {group.total_byte_size:,} bytes")
        row_bytes = max(row_bytes, group.total_byte_size // max(1, group.num_rows))
        least = 0
        for index in range(meta.num_columns):
            column, chunk = meta.schema.column(index), group.column(index)
            least += chunk.num_values * VALUE_BYTES.get(column.physical_type, column.length or 0)
            if column.physical_type != "BYTE_ARRAY":
                continue
            texts[column.path] = None
            encodings = set(chunk.encodings)
            if encodings <= SHAREABLE:
                continue
            largest = chunk.total_uncompressed_size if encodings & SHARING else 0
            if column.max_repetition_level and chunk.num_values * largest > allowed:
                raise _bomb_error(
                    f"{column.path} is in lists and may expand to {chunk.num_values * largest:,} "
                    f"bytes as {', '.join(sorted(encodings - SHAREABLE))}; write it as PLAIN"
                )
            opaque[column.path] = max(largest, opaque.get(column.path, 0))
        if least > allowed:
            raise _bomb_error(f"a row group of {least:,} bytes in a file of {file_bytes:,}")
    fits = COLUMNAR_BATCH_BYTES // (row_bytes + sum(opaque.values()))
    return [path for path in texts if path not in opaque], min(COLUMNAR_READ_ROWS, max(1, fits))


def arrow(stream: BinaryIO) -> Iterator[Row | Finding]:
    """Yield the rows of an Arrow file or stream, numbered from 1.

    Raises `FileReadError` when it is damaged or a decompression bomb.
    """
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


class DatasetFolder:
    """A dataset folder as `datasets` saves it or a hub stores it: Arrow or Parquet files.

    Reads the split `train`, or else the first one. Row numbers continue from file to file.

    bytes_read: size of the files read so far
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.bytes_read = 0

    def rows(self) -> Iterator[Row | Finding]:
        """Yield the rows of all files. Raises `FileReadError` when a file cannot be read."""
        files = _files(_split(self._path))
        if not files or len(files) > FOLDER_FILES_MAX:
            detail = f"the folder has {len(files) or 'no'} Arrow or Parquet files"
            raise FileReadError(Note("unsupported_format", detail=detail))
        number = 0
        for item in chain.from_iterable(map(self._file, files)):
            if isinstance(item, Row):
                number += 1
                item = Row(number, None, item.content)  # noqa: PLW2901  # renumbered
            yield item

    def _file(self, path: Path) -> Iterator[Row | Finding]:
        read: Callable[[BinaryIO], Iterator[Row | Finding]]
        with path.open("rb") as stream:
            read = parquet if stream.read(4) == b"PAR1" else arrow
            stream.seek(0)
            yield from read(stream)
        self.bytes_read += path.stat().st_size


def _split(path: Path) -> Path:
    """The folder of the training split."""
    listing = path / "dataset_dict.json"
    if not listing.is_file():
        return path
    try:
        splits = json.loads(listing.read_text(encoding="utf-8"))["splits"]
        split = path / ("train" if "train" in splits else splits[0])
    except (ValueError, KeyError, IndexError, TypeError) as error:
        note = Note("unsupported_format", detail="dataset_dict.json names no split")
        raise FileReadError(note) from error
    return split if split.parent == path else path


def _files(path: Path) -> list[Path]:
    """The files of a split, in the order of `state.json` or else by name."""
    state = path / "state.json"
    if state.is_file():
        try:
            listed = json.loads(state.read_text(encoding="utf-8"))["_data_files"]
            return [path / Path(entry["filename"]).name for entry in listed]
        except (ValueError, KeyError, TypeError) as error:
            note = Note("unsupported_format", detail="state.json names no files")
            raise FileReadError(note) from error
    for pattern in PATTERNS:
        files = sorted(path.glob(pattern))
        train = [file for file in files if file.name.startswith("train")]
        if files:
            return train or files
    return []


def _rows(batches: Iterator[Any], file_bytes: int) -> Iterator[Row | Finding]:
    """Yield the rows of record batches. Raises `FileReadError` for a decompression bomb."""
    number = unpacked = 0
    allowed = _allowed(file_bytes)
    for batch in batches:
        batch.validate(full=True)  # Arrow follows the offsets of a damaged file without checks
        plain = batch.schema
        for index, field in enumerate(plain):
            plain = plain.set(index, field.with_type(_unshared(field.type)))
        todo = [batch.slice(at, COLUMNAR_ROWS) for at in range(0, batch.num_rows, COLUMNAR_ROWS)]
        todo.reverse()
        while todo:
            part = todo.pop()
            size = sum(_expanded_bytes(column) for column in part.columns)
            if size > ROW_BYTES_MAX and part.num_rows > 1:
                half = part.num_rows // 2
                todo += (part.slice(half), part.slice(0, half))
                continue
            unpacked += size
            if unpacked > allowed:
                raise _bomb_error(f"{file_bytes:,} bytes expand to more than {unpacked:,}")
            if size > ROW_BYTES_MAX:
                number += 1
                yield Note("row_too_large").to_finding(number, None)
                continue
            for cells in part.cast(plain).to_pylist():
                number += 1
                yield Row(number, None, cells)


def _unshared(kind: Any) -> Any:
    """The type without shared values, which Arrow converts to objects faster."""
    from pyarrow import list_, struct, types

    if types.is_dictionary(kind):
        return kind.value_type
    if types.is_list(kind):
        return list_(kind.value_field.with_type(_unshared(kind.value_type)))
    if types.is_struct(kind):
        return struct([field.with_type(_unshared(field.type)) for field in kind.fields])
    return kind


def _allowed(file_bytes: int) -> int:
    return max(UNPACKED_FREE_BYTES, UNPACKED_RATIO_MAX * file_bytes)


def _bomb_error(detail: str) -> FileReadError:
    return FileReadError(Note("decompression_bomb", detail=detail))


def _expanded_bytes(array: Any) -> int:
    """The bytes of an array's values, counting every repeat of a shared value."""
    from pyarrow import compute, types

    kind = array.type
    if types.is_dictionary(kind):
        if not (types.is_string(kind.value_type) or types.is_binary(kind.value_type)):
            return int(array.nbytes) + len(array) * int(array.dictionary.nbytes)
        lengths = compute.binary_length(array.dictionary).take(array.indices)
        return int(compute.sum(lengths).as_py() or 0)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return int(_expanded_bytes(array.flatten()))
    if types.is_struct(kind):
        return sum(_expanded_bytes(child) for child in array.flatten())
    return int(array.nbytes)


@contextmanager
def _seekable(stream: BinaryIO) -> Iterator[Any]:
    """Open a stream for Arrow, through a temporary file when it is not seekable.

    Afterwards the stream is still open, and at its end.
    """
    import pyarrow

    with ExitStack() as stack:
        whole = stream
        if not stream.seekable():
            whole = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(stream, whole, MIB)
            whole.seek(0)
        yield pyarrow.PythonFile(_BorrowedStream(whole), mode="r")
        whole.seek(0, os.SEEK_END)


class _BorrowedStream:
    """A stream that its user cannot close."""

    closed = False

    def __init__(self, stream: BinaryIO) -> None:
        self.read, self.seek, self.tell = stream.read, stream.seek, stream.tell

    def close(self) -> None:
        """Do nothing: the owner closes the stream."""


def _unreadable(error: Exception, form: str) -> Exception:
    """The error of a damaged file; errors of the disk are returned unchanged."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    return FileReadError(Note("damaged_file", detail=f"{form}: {str(error)[:200]}"))
