"""Refusals because of a sender are rows to do, whatever the stream."""

from typing import Any

import pytest

from schemas import errors
from schemas.envelope import Rejected
from schemas.reasons import refusing
from services.gateway.views.projections.journals import project
from tests.unit.services.gateway.view_rows import header
from tunery.runtime.verbs import Todo

AT = 1_000_000
FORGED = Rejected(
    code=errors.SENDER_REFUSED,
    reason=refusing("sender_not_permitted", sender="node.evil", command="CreateKey"),
)
UNSIGNED = Rejected(code=errors.SENDER_REFUSED, reason=refusing("sender_unproven"))


def rows(stream: str, event: Rejected, at: int = AT) -> tuple[Any, ...]:
    return project(header(stream, at=at), event)


@pytest.mark.parametrize("stream", ["account", "dataset", "job", "pool", "model"])
def test_security_c2_a_refused_sender_is_noted_whatever_the_stream(stream: str) -> None:
    (row,) = rows(stream, FORGED)
    assert isinstance(row, Todo)
    assert rows(stream, Rejected(code=errors.MALFORMED, reason=refusing("tenant_not_key"))) == ()


def test_refusals_of_a_minute_are_one_row() -> None:
    """A stranger may write as fast as Kafka takes it."""
    ids = {rows("pool", UNSIGNED, at)[0].id for at in range(1_020_000, 1_080_000, 1_000)}
    assert len(ids) == 1
    assert rows("pool", UNSIGNED, 1_080_000)[0].id not in ids
