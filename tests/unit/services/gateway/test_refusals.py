"""Sentences of refusals: what can be done about each."""

from schemas.reasons import refusing
from services.gateway.refusals import REFUSALS
from services.gateway.wording import refusal_words


def test_first_hour_06_a_refusal_advises_what_can_be_done() -> None:
    """The refusal advised to lower n_epochs at one epoch; no text named the smallest hold."""
    cap = refusal_words(
        refusing("key_cap", price_max_micro=9, currency="EUR", left_micro=1, limit_micro=2)
    )
    assert "the smallest job holds 4 minutes of each slot" in cap
    budget = refusing("budget_amount", price_max_micro=9, currency="EUR", budget_micro=1)
    assert "fewer rows or epochs: the smallest job holds" in refusal_words(budget)
    assert not [words for words in REFUSALS.values() if "ower n_epochs" in words]


def test_first_hour_low_an_ended_job_is_named_in_good_english() -> None:
    """ "cannot cancel a job that has cancelled"."""
    words = [
        refusal_words(refusing("job_ended", change="cancel", outcome=outcome))
        for outcome in ("cancelled", "failed")
    ]
    assert words == [
        "You cannot cancel a job that has been cancelled already.",
        "You cannot cancel a job that has failed already.",
    ]
