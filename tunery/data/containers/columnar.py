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

from tunery.data.containers.compression import Unreadable
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

#: encodings of text in Parquet whose repeats Arrow can leave shared; those that share at all
SHAREABLE: Final = {"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}
SHARING: Final = {"PLAIN_DICTIONARY", "RLE_DICTIONARY", "DELTA_BYTE_ARRAY"}
#: bytes of one value by type, or of a text's index
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
    """Rows of a Parquet file, from 1. Raises `Unreadable` where it is damaged."""
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile, read_metadata

    try:
        with _seekable(stream) as whole:
            meta = read_metadata(whole)
            if meta.num_rows > ROWS_MAX:
                detail = f"{meta.num_rows:,}, at most {ROWS_MAX:,}"
                raise Unreadable(Note("too_many_rows", detail=detail))
            shared, rows = _plan(meta, whole.size())
            file = ParquetFile(whole, pre_buffer=False, read_dictionary=shared)
            # one group at a time: Arrow cannot join shared values of several inside lists
            groups = (
                file.iter_batches(rows, row_groups=[group], use_threads=False)
                for group in range(meta.num_row_groups)
            )
            yield from _rows(chain.from_iterable(groups), whole.size())
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        raise _unreadable(error, "Parquet") from error


def _plan(meta: Any, file_bytes: int) -> tuple[list[str], int]:
    """Columns whose values stay one value until their row is looked at, and rows to read together.

    Raises `Unreadable` for a row group that may become too large. In most encodings a value that
    stands in many rows is stored once; Arrow can leave it so in some of them. In the others each
    value may be as large as all the column's bytes, so few rows are read together, and lists, whose
    length is not known before, must be small.
    """
    allowed = _allowed(file_bytes)
    opaque: dict[str, int] = {}  # by column, what a value may have beyond its own bytes
    texts: dict[str, None] = {}
    row_bytes = 1
    for number in range(meta.num_row_groups):
        group = meta.row_group(number)
        if group.total_byte_size > COLUMNAR_GROUP_BYTES_MAX:
            raise _bomb(f"a row group of {group.total_byte_size:,} bytes")
        row_bytes = max(row_bytes, group.total_byte_size // max(1, group.num_rows))
        least = 0
        for place in range(meta.num_columns):
            column, chunk = meta.schema.column(place), group.column(place)
            least += chunk.num_values * VALUE_BYTES.get(column.physical_type, column.length or 0)
            if column.physical_type != "BYTE_ARRAY":
                continue
            texts[column.path] = None
            encodings = set(chunk.encodings)
            if encodings <= SHAREABLE:
                continue
            largest = chunk.total_uncompressed_size if encodings & SHARING else 0
            if column.max_repetition_level and chunk.num_values * largest > allowed:
                raise _bomb(
                    f"{column.path} is in lists and may become {chunk.num_values * largest:,} "
                    f"bytes as {', '.join(sorted(encodings - SHAREABLE))}; write it as PLAIN"
                )
            opaque[column.path] = max(largest, opaque.get(column.path, 0))
        if least > allowed:
            raise _bomb(f"a row group of {least:,} bytes in a file of {file_bytes:,}")
    fits = COLUMNAR_BATCH_BYTES // (row_bytes + sum(opaque.values()))
    return [path for path in texts if path not in opaque], min(COLUMNAR_READ_ROWS, max(1, fits))


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
    allowed = _allowed(file_bytes)
    for batch in batches:
        batch.validate(
            full=True
        )  # offsets and text out of a damaged file would be followed blindly
        plain = batch.schema
        for place, field in enumerate(plain):
            plain = plain.set(place, field.with_type(_plain(field.type)))
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
                raise _bomb(f"{file_bytes:,} bytes became more than {unpacked:,}")
            if size > ROW_BYTES_MAX:
                number += 1
                yield Note("row_too_large").at(number, None)
                continue
            for cells in some.cast(plain).to_pylist():
                number += 1
                yield Row(number, None, cells)


def _plain(kind: Any) -> Any:
    """The type with its shared values written out, which Arrow turns into objects faster."""
    from pyarrow import list_, struct, types

    if types.is_dictionary(kind):
        return kind.value_type
    if types.is_list(kind):
        return list_(kind.value_field.with_type(_plain(kind.value_type)))
    if types.is_struct(kind):
        return struct([field.with_type(_plain(field.type)) for field in kind.fields])
    return kind


def _allowed(file_bytes: int) -> int:
    return max(UNPACKED_FREE_BYTES, UNPACKED_RATIO_MAX * file_bytes)


def _bomb(detail: str) -> Unreadable:
    return Unreadable(Note("decompression_bomb", detail=detail))


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
