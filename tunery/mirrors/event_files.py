"""A job as a file that TensorBoard reads, without a package of TensorBoard's.

A file of events is a sequence of records (TFRecord): length, masked CRC-32C of the length, a
message Event in the encoding of protocol buffers, masked CRC-32C of the message. The field
numbers are those of event.proto, summary.proto and tensor.proto of TensorFlow.
"""

import struct
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Final

from tunery.mirrors.figures import Scalar, parameters, step_figures, summary

VERSION: Final = b"brain.Event:2"
CASTAGNOLI: Final = 0x82F63B78  # the polynomial of CRC-32C, reflected
MASK_DELTA: Final = 0xA282EAD8
DT_STRING: Final = 7
TENSOR_CLASS: Final = 2  # DATA_CLASS_TENSOR
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types


class EventFile:
    """One job in its own folder under `folder`, where TensorBoard shows it as a run.

    The bytes depend on the job alone: written again, the file is the same.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, folder
        self._file: IO[bytes] = BytesIO()  # until `begin`
        self._step = 0

    def begin(self, job: Mapping[str, Any]) -> int:
        """Write the file anew, with the parameters as a text. Raises OSError."""
        self._path = (
            self._folder / job["id"] / f"events.out.tfevents.{job['created_at']:010}.tunery"
        )
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("wb")
        self._write(event(job["created_at"], 0, _field(3, BYTES, VERSION)))
        self._write(event(job["created_at"], 0, text_summary("parameters", parameters(job))))
        return 0

    def add(self, step: Mapping[str, Any]) -> None:
        self._step = int(step["step"])
        self._write(event(step["created_at"], self._step, scalar_summary(step_figures(step))))

    def end(self, job: Mapping[str, Any]) -> None:
        """Write the summary as a text at the last step."""
        at = job["finished_at"] or job["created_at"]
        self._write(event(at, self._step, text_summary("summary", summary(job))))

    def close(self) -> None:
        self._file.close()

    @property
    def destination(self) -> str:
        return str(self._path)

    def _write(self, message: bytes) -> None:
        """Append a record, and hand it to the system: TensorBoard may read beside us."""
        self._file.write(record(message))
        self._file.flush()


def event(at_s: int, step: int, content: bytes) -> bytes:
    """A message Event. at_s: wall time in epoch seconds. content: its encoded field."""
    return _field(1, FIXED64, struct.pack("<d", at_s)) + _field(2, VARINT, _varint(step)) + content


def scalar_summary(figures: Mapping[str, float]) -> bytes:
    """The field `summary` of an event with a figure of each name, as 32-bit floats."""
    values = (
        _field(1, BYTES, name.encode()) + _field(2, FIXED32, _float(figure))
        for name, figure in figures.items()
    )
    return _field(5, BYTES, b"".join(_field(1, BYTES, value) for value in values))


def text_summary(name: str, values: Mapping[str, Scalar]) -> bytes:
    """The field `summary` of an event with a table in Markdown, for TensorBoard's page of texts."""
    rows = [f"| {key} | {_cell(value)} |" for key, value in values.items()]
    text = "\n".join(["| name | value |", "|---|---|", *rows])
    shape = _field(2, BYTES, _field(1, VARINT, _varint(1)))
    tensor = (
        _field(1, VARINT, _varint(DT_STRING))
        + _field(2, BYTES, shape)
        + _field(8, BYTES, text.encode())
    )
    metadata = _field(1, BYTES, _field(1, BYTES, b"text"))
    metadata += _field(4, VARINT, _varint(TENSOR_CLASS))
    value = _field(1, BYTES, f"{name}/text_summary".encode())
    value += _field(8, BYTES, tensor) + _field(9, BYTES, metadata)
    return _field(5, BYTES, _field(1, BYTES, value))


def record(message: bytes) -> bytes:
    """A message as a record of the file."""
    length = struct.pack("<Q", len(message))
    return length + _masked_checksum(length) + message + _masked_checksum(message)


def checksum(data: bytes) -> int:
    """CRC-32C (RFC 3720, appendix B.4)."""
    value = 0xFFFFFFFF
    for byte in data:
        value = TABLE[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def _masked_checksum(data: bytes) -> bytes:
    value = checksum(data)
    rotated = (value >> 15) | (value << 17)
    return struct.pack("<I", (rotated + MASK_DELTA) & 0xFFFFFFFF)


def _table_entry(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (CASTAGNOLI if value & 1 else 0)
    return value


TABLE: Final = tuple(map(_table_entry, range(256)))


def _field(number: int, wire_type: int, content: bytes) -> bytes:
    """A field of a message; `content` is encoded already, bytes get their length."""
    length = _varint(len(content)) if wire_type == BYTES else b""
    return _varint(number << 3 | wire_type) + length + content


def _varint(value: int) -> bytes:
    """A number from 0 on, seven bits a byte, the lowest first."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _float(figure: float) -> bytes:
    try:
        return struct.pack("<f", figure)
    except OverflowError:  # beyond 32 bits
        return struct.pack("<f", float("inf") if figure > 0 else float("-inf"))


def _cell(value: Scalar) -> str:
    """A value as a cell of a table: on one line, and without its own border."""
    return " ".join(str(value).split()).replace("|", "\\|")
