"""Messages of the Tinker SDK: the bytes that protobuf's own rules give to their fields."""

import pytest

from services.gateway.sessions.messages import DecodeError, PassOutput, PassRequest, SampleOutput


def test_fields_have_the_numbers_of_the_sdk() -> None:
    request = PassRequest(model_id="m", seq_id=7, loss_fn="ppo", forward_only=True)
    # a tag is the field's number times 8, and 2 for bytes or 0 for a number
    assert request.SerializeToString() == b"\x0a\x01m\x10\x07\x22\x03ppo\x30\x01"
    output = SampleOutput()
    output.sequences.add(stop_reason=1, tokens=b"t", logprobs=b"l")
    assert output.SerializeToString() == b"\x0a\x08\x08\x01\x12\x01t\x1a\x01l"


def test_a_map_is_read_as_one() -> None:
    output = PassOutput()
    output.metrics["loss:sum"] = 1.5
    again = PassOutput()
    again.ParseFromString(output.SerializeToString())
    assert dict(again.metrics) == {"loss:sum": 1.5}


def test_a_field_that_a_newer_sdk_adds_is_no_error() -> None:
    request = PassRequest()
    request.ParseFromString(b"\x0a\x01m\xfa\x01\x01x")
    assert request.model_id == "m"
    with pytest.raises(DecodeError):
        request.ParseFromString(b"\x0a\xff")
