"""Common code of both clients: foreign answers, parts of URLs, files in pieces, concurrency."""

import asyncio
import io
from pathlib import Path
from typing import Any

import httpx
import pytest

from tunery.client.wire import (
    SHOWN_CHARACTERS_MAX,
    UNKNOWN,
    ApiRefusal,
    Pieces,
    ProgressReader,
    at_once,
    object_of,
    part,
    refused,
    streams,
)

URL = "http://api/v1/files"


def answer(status: int, **content: Any) -> httpx.Response:
    return httpx.Response(status, request=httpx.Request("GET", URL), **content)


def test_the_object_of_an_answer_is_returned_as_it_is() -> None:
    assert object_of(answer(200, json={"id": "file-1"})) == {"id": "file-1"}


def test_a_refusal_keeps_its_status_code_message_and_param() -> None:
    error = {"code": "too_long", "message": "Shorten the suffix.", "param": "suffix"}
    with pytest.raises(ApiRefusal, match=r"^Shorten the suffix\.$") as caught:
        object_of(answer(400, json={"error": error}))
    refusal = caught.value
    assert (refusal.status, refusal.code, refusal.param) == (400, "too_long", "suffix")


@pytest.mark.parametrize(
    "content",
    [
        {"content": b"<html>\n It  works!\n</html>"},
        {"json": ["<html> It works! </html>"]},
        {"json": "<html> It works! </html>"},
    ],
)
@pytest.mark.parametrize("status", [200, 502])
def test_another_server_is_named_by_its_address_and_its_text(
    status: int, content: dict[str, Any]
) -> None:
    with pytest.raises(ApiRefusal) as caught:
        object_of(answer(status, **content))
    assert (caught.value.status, caught.value.code) == (status, UNKNOWN)
    assert caught.value.message.startswith(f"{URL} answered {status}, and not as this API does: ")
    assert "<html> It works! </html>" in caught.value.message


@pytest.mark.parametrize(
    "body", [{}, {"error": None}, {"error": {"code": "x", "message": "y"}}, {"error": "gone"}]
)
def test_an_error_without_the_fields_of_ours_is_another_servers(body: object) -> None:
    assert refused(answer(500, json=body)).code == UNKNOWN


def test_a_long_text_is_cut_and_an_empty_one_is_replaced_by_the_reason() -> None:
    long = refused(answer(500, content=b"x" * 10_000)).message
    assert long.endswith(": " + "x" * SHOWN_CHARACTERS_MAX)
    assert refused(answer(503)).message.endswith(": Service Unavailable")


@pytest.mark.parametrize(
    ("status", "kind", "expected"),
    [
        (200, "text/event-stream", True),
        (200, "text/event-stream; charset=utf-8", True),
        (200, "application/json", False),
        (404, "text/event-stream", False),
    ],
)
def test_only_a_success_of_the_right_type_is_a_stream(
    status: int, kind: str, expected: bool
) -> None:
    assert streams(answer(status, headers={"content-type": kind})) is expected
    assert not streams(answer(status))


@pytest.mark.parametrize(
    ("identifier", "expected"),
    [
        ("ft:smol/a b", "ft:smol%2Fa%20b"),
        ("../../keys?x=1#y", "..%2F..%2Fkeys%3Fx%3D1%23y"),
        ("fa%q@1", "fa%25q%401"),
    ],
)
def test_an_identifier_stays_one_part_of_a_url(identifier: str, expected: str) -> None:
    assert part(identifier) == expected


def test_a_reader_tells_how_much_was_read_in_all() -> None:
    sent: list[int] = []
    reader = ProgressReader(io.BytesIO(b"abcdefg"), sent.append)
    assert [reader.read(3), reader.read(3), reader.read(), reader.read()] == [
        *(b"abc", b"def", b"g", b""),
    ]
    assert sent == [3, 6, 7, 7]
    assert reader.seekable()  # all else is the file's own


@pytest.mark.parametrize(("size", "starts"), [(0, []), (1, [0]), (4, [0]), (9, [0, 4, 8])])
def test_pieces_put_together_are_the_file(tmp_path: Path, size: int, starts: list[int]) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(size)))
    pieces = Pieces(path, 4, None)
    assert (pieces.bytes, list(pieces.starts)) == (size, starts)
    assert b"".join(pieces.read(start) for start in pieces.starts) == bytes(range(size))


def test_senders_of_pieces_add_up_in_one_progress(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    seen: list[int] = []
    pieces = Pieces(path, 10, seen.append)
    for start in pieces.starts:
        pieces.sent(len(pieces.read(start)))
    assert seen == list(range(10, 110, 10))
    Pieces(path, 10, None).sent(10)  # is not shown
    with pytest.raises(FileNotFoundError):
        Pieces(tmp_path / "gone", 10, None)


async def test_so_many_run_at_once_and_results_keep_their_order() -> None:
    under_way, most = 0, 0

    async def work(number: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001 * (5 - number))
        under_way -= 1
        return number * number

    assert await at_once(work, range(5), 2) == [0, 1, 4, 9, 16]
    assert (most, under_way) == (2, 0)


async def test_the_first_failure_ends_the_others() -> None:
    finished: list[int] = []

    async def work(number: int) -> None:
        if number == 1:
            raise LookupError("lost")
        await asyncio.sleep(60)
        finished.append(number)

    async with asyncio.timeout(180):
        with pytest.raises(LookupError, match="lost"):
            await at_once(work, range(4), 4)
    assert finished == []
