"""Forms in any cut: the same file, whatever the chunks."""

from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.files.multipart import UploadForm, boundary_of, receive_form
from services.gateway.web.domain.errors import ApiError

BOUNDARY = b"----b"


def a_form(content: bytes) -> bytes:
    return (
        b'------b\r\nContent-Disposition: form-data; name="file"; filename="rows.jsonl"'
        b"\r\nContent-Type: application/jsonl\r\n\r\n"
        + content
        + b'\r\n------b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nfine-tune'
        + b"\r\n------b--\r\n"
    )


async def received(
    body: bytes, cuts: list[int], bytes_max: int = 10_000
) -> tuple[UploadForm, bytes]:
    written = bytearray()
    edges = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})

    async def chunks() -> AsyncIterator[bytes]:
        for start, end in pairwise(edges):
            yield body[start:end]

    async def write(chunk: bytes) -> None:
        written.extend(chunk)

    return await receive_form(BOUNDARY, chunks(), write, bytes_max), bytes(written)


@given(
    st.binary(max_size=300).filter(lambda content: b"------b" not in content),
    st.lists(st.integers(0, 1_000), max_size=20),
)
async def test_a_form_is_parsed_the_same_however_it_is_chunked(
    content: bytes, cuts: list[int]
) -> None:
    form, written = await received(a_form(content), cuts)
    assert written == content
    assert form == UploadForm({"purpose": "fine-tune"}, "rows.jsonl", len(content))


@given(st.binary(max_size=400), st.lists(st.integers(0, 1_000), max_size=5))
async def test_any_bytes_are_parsed_or_refused_with_400(body: bytes, cuts: list[int]) -> None:
    for whole in (body, a_form(b"x")[:60] + body):
        assert await status(whole, cuts) in (200, 400)


async def status(body: bytes, cuts: list[int]) -> int:
    try:
        await received(body, cuts)
    except ApiError as error:
        return error.status
    return 200


async def test_limits_are_named() -> None:
    with pytest.raises(ApiError) as large:
        await received(a_form(b"x" * 11), [], bytes_max=10)
    assert (large.value.status, large.value.code) == (413, "file_too_large")
    part = b'------b\r\nContent-Disposition: form-data; name="x"\r\n\r\ny\r\n'
    with pytest.raises(ApiError, match="more than 32 parts"):
        await received(part * 33 + b"------b--\r\n", [])
    with pytest.raises(ApiError, match="longer than 4096"):
        await received(part.replace(b"y", b"y" * 5_000) + b"------b--\r\n", [])
    file = b'------b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n1\r\n'
    with pytest.raises(ApiError, match="one file at a time"):
        await received(file + file + b"------b--\r\n", [])


@pytest.mark.parametrize("kind", [None, "", "application/json", "multipart/form-data"])
def test_a_body_that_is_not_a_form_is_refused(kind: str | None) -> None:
    with pytest.raises(ApiError, match="multipart/form-data"):
        boundary_of(kind)


@pytest.mark.parametrize("purpose", ["fine-tune", "vision"])
async def test_first_hour_22_fields_are_checked_before_the_bytes_are_taken(purpose: str) -> None:
    """A form with a wrong field was read and stored to its end."""
    head = (
        b'------b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n'
        + purpose.encode()
        + b"\r\n"
    )
    sent, written = [head, *(a_form(b"x" * 50)[cut : cut + 100] for cut in range(0, 300, 100))], []

    async def chunks() -> AsyncIterator[bytes]:
        while sent:
            yield sent.pop(0)

    async def write(chunk: bytes) -> None:
        written.append(chunk)

    def check(form: UploadForm) -> None:
        if form.fields["purpose"] != "fine-tune":
            raise ApiError(400, "invalid_value", "wrong", "purpose")

    if purpose == "fine-tune":
        assert (await receive_form(BOUNDARY, chunks(), write, 100, check=check)).bytes == 50
        return
    with pytest.raises(ApiError):
        await receive_form(BOUNDARY, chunks(), write, 100, check=check)
    assert (len(sent) > 0, written) == (True, [])
