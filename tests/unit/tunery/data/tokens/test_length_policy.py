"""A long row becomes sequences that can all be learnt from, and loses no label."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunery.data.findings.finding import Note
from tunery.data.tokens.chat_renderer import Rendered
from tunery.data.tokens.length_policy import LENGTH_POLICIES, fit
from tunery.data.tokens.tokenizer import Encoded

NO_TEXT = Rendered("", (), (), 0)
masks = st.binary(min_size=1, max_size=200).map(lambda mask: bytes(byte & 1 for byte in mask))


def encoded(mask: bytes) -> Encoded:
    return Encoded(list(range(len(mask))), mask, NO_TEXT)


def labels(tokens: Encoded) -> list[int]:
    return [token for token, learnt in zip(tokens.ids[1:], tokens.mask[1:], strict=True) if learnt]


@given(mask=masks, limit=st.integers(2, 40))
def test_splitting_keeps_every_label_once_and_in_order(mask: bytes, limit: int) -> None:
    row = encoded(mask)
    fitted = fit(row, limit, "split")
    if isinstance(fitted, Note):
        assert (fitted.code, labels(row)) == ("no_trainable_token", [])
        return
    assert [label for each in fitted for label in labels(each)] == labels(row)


@given(mask=masks, limit=st.integers(1, 40), policy=st.sampled_from(LENGTH_POLICIES))
def test_every_sequence_fits_and_has_a_label(mask: bytes, limit: int, policy: str) -> None:
    fitted = fit(encoded(mask), limit, policy)  # type: ignore[arg-type]  # one of the policies
    if isinstance(fitted, Note):
        return
    assert fitted
    for each in fitted:
        assert len(each.ids) == len(each.mask) <= limit
        assert labels(each)


@pytest.mark.parametrize(
    ("mask", "limit", "policy", "code"),
    [
        (b"\0\1\1", 2, "reject", "row_too_long"),
        (b"\0\0\1", 2, "truncate", "no_trainable_token"),
        (b"\1\0\0", 2, "split", "no_trainable_token"),
        (b"\1", None, "reject", "no_trainable_token"),
    ],
)
def test_rows_without_a_usable_sequence_have_a_finding(
    mask: bytes, limit: int | None, policy: str, code: str
) -> None:
    fitted = fit(encoded(mask), limit, policy)  # type: ignore[arg-type]  # one of the policies
    assert isinstance(fitted, Note)
    assert fitted.code == code
