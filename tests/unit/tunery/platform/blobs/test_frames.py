import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunery.platform.blobs.frames import (
    FORMER,
    FRAME_BYTES,
    HEADER_BYTES,
    STORED_FRAME_BYTES,
    FrameBroken,
    FrameReader,
    FrameWriter,
    content_bytes,
    former_path_key,
    narrow,
    path_key,
    version_of,
)
from tunery.platform.seal.abstract import DataKey

KEY = DataKey("acme.1a2b3c4d", bytes(range(32)))
PATH = "t/acme/files/file-1"
SIZES = (0, 1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 3 * FRAME_BYTES, 200_003)


def sealed(content: bytes, step: int = 0, key: DataKey = KEY, path: str = PATH) -> bytes:
    writer = FrameWriter(path_key(key, path))
    size = step or len(content) or 1
    parts = [writer.write(content[at : at + size]) for at in range(0, len(content), size)]
    return b"".join([*parts, writer.finish()])


def opened(stored: bytes, step: int = 0, key: DataKey = KEY, path: str = PATH) -> bytes:
    reader = FrameReader(path_key(key, path), stored[:HEADER_BYTES])
    body = stored[HEADER_BYTES:]
    size = step or len(body) or 1
    parts = [reader.read(body[at : at + size]) for at in range(0, len(body), size)]
    return b"".join([*parts, reader.finish()])


def frames(stored: bytes) -> list[bytes]:
    body = stored[HEADER_BYTES:]
    return [body[at : at + STORED_FRAME_BYTES] for at in range(0, len(body), STORED_FRAME_BYTES)]


@pytest.mark.parametrize("size", SIZES)
def test_content_of_every_size_comes_back_and_its_size_is_known(size: int) -> None:
    content = bytes(index % 251 for index in range(size))
    stored = sealed(content)
    assert opened(stored) == content
    assert content_bytes(len(stored)) == size
    assert version_of(stored[:HEADER_BYTES]) == b"tunery-21a2b3c4d"


@given(st.binary(max_size=300_000), st.integers(1, 100_000), st.integers(1, 100_000))
def test_it_does_not_matter_in_which_pieces_bytes_come(
    content: bytes, written: int, read: int
) -> None:
    assert opened(sealed(content, written), read) == content


@pytest.mark.security
def test_the_key_of_a_folder_opens_what_is_below_it_and_nothing_beside_it() -> None:
    folder = path_key(KEY, "t/acme/files/")
    assert narrow(folder, "file-1") == path_key(KEY, PATH)
    assert narrow(path_key(KEY, "t/"), "acme/files/file-1") == path_key(KEY, PATH)
    assert narrow(path_key(KEY, "t/acme/file"), "s/file-1") != path_key(KEY, PATH)
    assert narrow(folder, "file-2") != path_key(KEY, PATH)
    assert path_key(KEY, "t/acme/files") != folder


def test_a_blob_of_the_form_before_opens_with_its_own_key() -> None:
    writer = FrameWriter(former_path_key(KEY, PATH))
    stored = writer.write(b"rows of before") + writer.finish()
    assert stored.startswith(FORMER)
    assert version_of(stored[:HEADER_BYTES]) == former_path_key(KEY, PATH).version
    reader = FrameReader(former_path_key(KEY, PATH), stored[:HEADER_BYTES])
    assert reader.read(stored[HEADER_BYTES:]) + reader.finish() == b"rows of before"
    with pytest.raises(FrameBroken):
        opened(stored)


def test_security_what_is_cut_exchanged_or_changed_does_not_open() -> None:
    stored = sealed(bytes(3 * FRAME_BYTES + 7))
    head, (first, second, third, last) = stored[:HEADER_BYTES], frames(stored)
    flipped = first[:100] + bytes([first[100] ^ 1]) + first[101:]
    for parts in (
        (first, second, third),
        (first, second),
        (first,),
        (),
        (second, first, third, last),
        (first, third, last),
        (first, second, third, third, last),
        (first, second, third, last, last),
        (flipped, second, third, last),
        (first, second, third, last[:-1]),
        (first, second, third, last + b"\0"),
        (last,),
    ):
        with pytest.raises(FrameBroken):
            opened(head + b"".join(parts))


def test_security_frames_of_another_blob_place_or_key_do_not_open() -> None:
    stored, other = sealed(bytes(2 * FRAME_BYTES)), sealed(bytes(2 * FRAME_BYTES))
    assert stored != other, "the same content has other bytes each time"
    spliced = (
        stored[: HEADER_BYTES + STORED_FRAME_BYTES] + other[HEADER_BYTES + STORED_FRAME_BYTES :]
    )
    with pytest.raises(FrameBroken):
        opened(spliced)
    with pytest.raises(FrameBroken):
        opened(stored, path="t/acme/files/file-2")
    with pytest.raises(FrameBroken):
        opened(stored, key=DataKey(KEY.key_id, bytes(32)))
    with pytest.raises(FrameBroken):
        opened(stored[:16] + bytes(32) + stored[48:])


def test_what_is_no_blob_is_refused() -> None:
    for size in (0, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 15):
        with pytest.raises(FrameBroken):
            content_bytes(size)
    for header in (b"", bytes(HEADER_BYTES), b"tunery-1abc"):
        with pytest.raises(FrameBroken):
            version_of(header)
    with pytest.raises(ValueError, match="no version"):
        path_key(DataKey("acme.1", bytes(32)), PATH)
