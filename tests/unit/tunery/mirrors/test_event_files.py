"""Files of events, read by the rules of their formats. `make test-clients` reads them with
TensorBoard.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tunery.mirrors.jobs import CREATED, ENDED, JOB_ID, job, step
from tunery.mirrors.event_files import EventFile, checksum, scalar_summary


def records(content: bytes) -> Iterator[bytes]:
    """The messages of a file; the checksums are compared."""
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        message = content[12 : 12 + length]
        for data, stored in ((content[:8], content[8:12]), (message, content[12 + length :][:4])):
            value = checksum(data)
            rotated = ((value >> 15) | (value << 17)) & 0xFFFFFFFF
            assert struct.unpack("<I", stored)[0] == (rotated + 0xA282EAD8) % 2**32
        yield message
        content = content[16 + length :]


def fields(message: bytes) -> list[tuple[int, Any]]:
    """Number and content of each field of a message in protocol buffers."""
    read: list[tuple[int, Any]] = []
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        number, wire_type = divmod(varint(), 8)
        if wire_type == 0:
            read.append((number, varint()))
            continue
        size = {1: 8, 2: 0, 5: 4}[wire_type] or varint()
        read.append((number, message[at : at + size]))
        at += size
    return read


def written(folder: Path, steps: int = 3) -> Path:
    mirror = EventFile(folder)
    assert mirror.begin(job()) == 0
    for number in range(1, steps + 1):
        mirror.add(step(number))
    if steps == 3:
        mirror.end(job())
    mirror.close()
    return Path(mirror.destination)


def test_the_checksum_is_that_of_the_standard() -> None:
    """RFC 3720, B.4: 32 bytes of zeroes, and 0 to 31."""
    assert checksum(bytes(32)) == 0x8A9136AA
    assert checksum(bytes(range(32))) == 0x46DD794E


def test_a_file_has_parameters_each_step_and_the_summary(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert path.parent == tmp_path / JOB_ID
    version, settings, *steps, ending = map(dict, map(fields, records(path.read_bytes())))
    assert version[3] == b"brain.Event:2"
    assert b"| batch_size | 4 |" in settings[5]
    assert [(event[2], struct.unpack("<d", event[1])[0]) for event in steps] == [
        (number, CREATED + number) for number in (1, 2, 3)
    ]
    values = [dict(fields(value)) for _, value in fields(steps[1][5])]
    figures = {value[1].decode(): struct.unpack("<f", value[2])[0] for value in values}
    assert figures["train/loss"] == 1.0
    assert figures["training/learning_rate"] == pytest.approx(0.001)
    assert struct.unpack("<d", ending[1])[0] == ENDED
    assert b"| gate | pass |" in ending[5]


def test_a_file_that_is_written_again_is_the_same(tmp_path: Path) -> None:
    first = written(tmp_path, steps=2).read_bytes()
    whole = written(tmp_path).read_bytes()
    assert whole.startswith(first)
    assert written(tmp_path).read_bytes() == whole
    assert len([*tmp_path.rglob("*tfevents*")]) == 1


def test_a_figure_beyond_32_bits_is_infinite() -> None:
    message = scalar_summary({"a": 1e300, "b": -1e300})
    assert message.count(struct.pack("<f", float("inf"))) == 1
    assert message.count(struct.pack("<f", float("-inf"))) == 1
