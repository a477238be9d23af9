import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunery.runtime.bus.abstract import Record
from tunery.runtime.tools.archive import ArchiveError, ArchiveReader, write

VALUES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [
            b'{"a": 1}',
            b' {"a":1}',
            b'{"a":\n1}',
            b"null",
            b"",
            b'"\xff"',
            b"[" * 5_000,
            b"1}",
            b"{}",
        ]
    ),
)


def written(records: list[Record], bounds: dict[int, tuple[int, int]]) -> bytes:
    file = io.BytesIO()
    write(file, "places", bounds, records)
    return file.getvalue()


def read(text: bytes) -> list[Record]:
    return list(ArchiveReader(io.BytesIO(text)).records())


@given(st.lists(st.tuples(VALUES, st.binary(max_size=9)), max_size=8), st.integers(0, 2**40))
def test_an_export_restores_every_byte(parts: list[tuple[bytes, bytes]], start: int) -> None:
    records = [Record(3, start + i, i, key, value) for i, (value, key) in enumerate(parts)]
    assert read(written(records, {3: (start, start + len(records))})) == records


def test_json_stands_in_the_file_as_it_is() -> None:
    text = written([Record(0, 0, 7, b"", b'{"record": "claim"}')], {0: (0, 1)})
    assert b'"value":{"record": "claim"}}\n' in text


WHOLE = written([Record(0, n, 7, b"k", b"{}") for n in range(3)], {0: (0, 3), 1: (0, 0)})
LINES = WHOLE.splitlines(keepends=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "line 1: this is not the head"),
        (b"\x00\x01", "line 1: JSON is malformed"),
        (WHOLE.replace(b'"format":1', b'"format":2'), "line 1: this is not the head"),
        (b"".join(LINES[:-1]), "it was cut off"),
        (WHOLE[: len(WHOLE) // 2], "line 3"),
        (b"".join([LINES[0], *LINES[2:]]), "line 2: partition 0 at offset 1 is not the next"),
        (b"".join([*LINES[:3], LINES[4]]), "line 4: the records before it are not those"),
        (WHOLE + LINES[1], "line 5: the records before it are not those"),
        (b"".join([*LINES[:2], LINES[0], *LINES[2:]]), "line 3: a second head"),
        (WHOLE.replace(b'"partition":0', b'"partition":5'), "line 2: partition 5 at offset 0"),
    ],
)
def test_an_incomplete_export_is_refused_with_its_line(text: bytes, message: str) -> None:
    with pytest.raises(ArchiveError, match=message):
        read(text)
