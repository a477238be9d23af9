"""Every code has its words, and a code without words is shown as it is."""

from typing import get_args

import pytest

from schemas.envelope import Reason
from schemas.reasons import SkipCode, WaitCode, skipping, waiting
from services.gateway.web.wording import SKIPS, WAITS, hours, money, skip_words, wait_words


def test_every_code_has_words_and_no_others() -> None:
    assert set(get_args(WaitCode)) == WAITS.keys()
    assert set(get_args(SkipCode)) == SKIPS.keys()


@pytest.mark.parametrize("sentence", WAITS.values())
def test_reasons_of_waits_are_sentences(sentence: str) -> None:
    assert sentence[0].isupper()
    assert sentence.endswith(".")


def test_parameters_are_shown_as_people_read_them() -> None:
    assert wait_words(waiting("no_capacity", slots=1)) == (
        "Waiting for 1 slot: every node that fits is busy."
    )
    assert wait_words(waiting("gang_too_large", slots=9)) == (
        "No node of the pool has 9 slots. The job waits until one is added."
    )
    assert skip_words(skipping("blob_missing")) == "a file of it is not in object storage"
    assert (hours(1), hours(3_600_000), money(1_234_567)) == ("0.01", "1.00", "1.24")


def test_unknown_codes_and_missing_parameters_are_shown_verbatim() -> None:
    assert wait_words(None) is None
    assert wait_words(Reason(code="not_known_yet")) == "not_known_yet"
    assert wait_words(Reason(code="no_capacity")) == "no_capacity"
