"""Orders and replies as lines."""

import msgspec
import pytest

from tunery.work.answers import (
    AbandonAnswer,
    DropModel,
    LoadModel,
    ModelReady,
    ModelUnloadable,
    ProcessOrder,
    ProcessReply,
    TokensEnded,
    TokenWritten,
    WriteAnswer,
    decode_process_order,
    decode_process_reply,
    encode_record,
)
from tunery.work.engine import Sampling

ORDERS: tuple[ProcessOrder, ...] = (
    LoadModel(1, "a", "/bases/a", None),
    WriteAnswer(2, "a", (1, 2), Sampling(seed=3, stop=("x",)), 4),
    AbandonAnswer(2),
    DropModel(3, "a"),
)
REPLIES: tuple[ProcessReply, ...] = (
    ModelReady(1),
    ModelUnloadable(1, "no file"),
    TokenWritten(2, 7, -0.5, ((7, -0.5), (8, -1.0))),
    TokensEnded(2, "stop", 3),
)


def test_orders_and_replies_are_read_as_they_were_written() -> None:
    assert [decode_process_order(encode_record(order)) for order in ORDERS] == [*ORDERS]
    assert [decode_process_reply(encode_record(reply)) for reply in REPLIES] == [*REPLIES]


def test_a_reply_is_no_order() -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_process_order(encode_record(REPLIES[0]))
