"""Messages of the stream "dataset": keys of parts, and what the decoder refuses."""

import msgspec
import pytest

from schemas.dataset import Command, DeleteFile, Event, FileDeleted, PackPlan, part_blob


def test_parts_of_an_upload_are_stored_under_their_tenant() -> None:
    assert part_blob("acme", "upload_1", "part_2") == "t/acme/uploads/upload_1/part_2"


def test_a_message_is_read_back_by_its_type() -> None:
    event = FileDeleted(file_id="f", blob="b", report_blob=None, erase=("ü",))
    assert msgspec.json.decode(msgspec.json.encode(event), type=Event) == event
    command = DeleteFile(file_id="f")
    assert msgspec.json.decode(msgspec.json.encode(command), type=Command) == command


@pytest.mark.parametrize("digest", ["", "a" * 63, "A" * 64, "g" * 64, "a" * 65])
def test_a_hash_that_is_no_sha256_is_refused(digest: str) -> None:
    body = {
        "type": "AddPart.v1",
        "upload_id": "u",
        "part": {"part_id": "p", "bytes": 1, "sha256": digest},
    }
    with pytest.raises(msgspec.ValidationError, match="sha256"):
        msgspec.convert(body, type=Command)


def test_an_event_is_not_a_command() -> None:
    body = msgspec.json.encode(FileDeleted(file_id="f", blob="b", report_blob=None))
    with pytest.raises(msgspec.ValidationError, match=r"FileDeleted\.v1"):
        msgspec.json.decode(body, type=Command)


def test_a_plan_is_an_array_on_the_wire() -> None:
    plan = PackPlan(max_length=8, validation_fraction_ppm=1, packed_rows=2, tokens=3)
    assert msgspec.json.encode(plan) == b"[8,1,2,3]"
