"""Files that agent and process exchange in a session."""

from pathlib import Path

import msgspec
import pytest

from tunery.work.session import (
    FailedAnswer,
    HandedCommand,
    LossRow,
    PassBody,
    SaveBody,
    decode_answer,
    decode_body,
    decode_handed,
    encode_body,
    hand_over,
)

PASS = PassBody(
    loss="ppo", rows=(LossRow(tokens=b"\0" * 4, targets=b"\1" * 4),), settings={"a": 0.5}
)


def test_what_is_encoded_is_read_as_what_it_was() -> None:
    assert decode_body(encode_body(PASS)) == PASS
    assert decode_answer(encode_body(FailedAnswer(message="no"))) == FailedAnswer(message="no")


def test_the_same_command_has_the_same_bytes() -> None:
    """Their hash tells a request that comes again from another one with its number."""
    assert encode_body(PASS) == encode_body(decode_body(encode_body(PASS)))


@pytest.mark.parametrize("content", [b"", b"\xc1", encode_body({"type": "other"})])
def test_anything_else_is_no_body(content: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_body(content)


def test_a_command_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    command = HandedCommand(
        name="1", seq=1, kind="save_state", body=encode_body(SaveBody(path="p")), tokens=0
    )
    hand_over(tmp_path, 1, encode_body(command))
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
    assert decode_handed((tmp_path / "1").read_bytes()) == command
