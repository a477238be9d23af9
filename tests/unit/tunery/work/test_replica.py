"""Records between a replica, its agent and gateways: what is written is read again."""

import msgspec
import pytest

from tunery.work.codec import encode_spec
from tunery.work.engine import EngineModel
from tunery.work.replica import (
    FileFetched,
    FileRefused,
    FileWanted,
    ReplicaEndpoint,
    ReplicaSpec,
    decode_endpoint,
    decode_file_reply,
    decode_file_wanted,
    decode_replica_spec,
    encode_endpoint,
    encode_file_line,
)

SPEC = ReplicaSpec(
    base=EngineModel("tiny", "/bases/tiny", "ab" * 32, 0),
    socket="/l/replica.socket",
    files_socket="/l/files.socket",
    models_dir="/n/engine",
    answers_dir="/n/answers/0",
    threads=2,
)


def test_records_are_read_as_they_were_written() -> None:
    assert decode_replica_spec(encode_spec(SPEC)) == SPEC
    wanted = FileWanted("t/acme/a", "ab" * 32)
    assert decode_file_wanted(encode_file_line(wanted)) == wanted
    for reply in (FileFetched("/l/fetched/1"), FileRefused("no blob")):
        assert decode_file_reply(encode_file_line(reply)) == reply
    endpoint = ReplicaEndpoint("node-1", 4_711, "PEM", "secret")
    assert decode_endpoint(encode_endpoint(endpoint)) == endpoint


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"host": "a"}'])
def test_bad_input_anything_else_is_no_endpoint(text: str) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_endpoint(text)
