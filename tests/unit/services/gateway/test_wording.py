"""Every code has its words, and a code without words is shown as it is."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from string import Formatter
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from schemas.envelope import Reason
from schemas.reasons import (
    Failure,
    FailureCode,
    FileCode,
    RefusalCode,
    SkipCode,
    VerdictCode,
    WaitCode,
    failing,
    judging,
    refusing,
    rejecting,
    skipping,
    waiting,
)
from services.gateway.refusals import REFUSALS
from services.gateway.wording import (
    ADVICE,
    FAILURES,
    FILES,
    NOT_FINITE,
    OVERFITTED,
    PARAMETERS,
    SKIPS,
    UNBLOCKS,
    UNTRAINED,
    VERDICTS,
    WAITS,
    advice_words,
    failure_words,
    file_words,
    hours,
    money,
    own_data_words,
    parameter_words,
    refusal_words,
    skip_words,
    unblock_words,
    verdict_words,
    wait_words,
)
from tests.unit.services.gateway.jobs.job_events import SUBMITTED, SUMMARY
from tunery.data.findings.codes import CATALOGUE
from tunery.plan.hyperparameters import ParameterCode, problems

CODES: Mapping[str, tuple[Any, Mapping[Any, str]]] = {
    "waits": (WaitCode, WAITS),
    "skipped checkpoints": (SkipCode, SKIPS),
    "refusals": (RefusalCode, REFUSALS),
    "files": (FileCode, FILES),
    "failures": (FailureCode, FAILURES),
    "verdicts": (VerdictCode, VERDICTS),
    "parameters": (ParameterCode, PARAMETERS),
}


@pytest.mark.parametrize("name", CODES)
def test_every_code_has_words_and_no_others(name: str) -> None:
    codes, catalogue = CODES[name]
    assert set(get_args(codes)) == catalogue.keys()


def test_a_failure_may_have_the_reason_of_a_refusal_and_no_code_has_two_meanings() -> None:
    assert not FAILURES.keys() & REFUSALS.keys()
    assert not FAILURES.keys() & FILES.keys()


@pytest.mark.parametrize(
    "sentence", [*WAITS.values(), *FAILURES.values(), *ADVICE.values(), OVERFITTED]
)
def test_reasons_of_waits_and_failures_are_sentences(sentence: str) -> None:
    assert sentence[0].isupper()
    assert sentence.endswith(".")


WORDS: Mapping[str, Callable[[Reason], str | None]] = {
    "waits": wait_words,
    "skipped checkpoints": skip_words,
    "refusals": refusal_words,
    "files": file_words,
    "failures": lambda reason: failure_words(Failure(code="x", reason=reason)),
    "verdicts": verdict_words,
    "parameters": parameter_words,
}


@pytest.mark.parametrize("name", CODES)
def test_words_with_all_their_parameters_show_no_code(name: str) -> None:
    for code, sentence in CODES[name][1].items():
        names = [field for _, field, _, _ in Formatter().parse(sentence) if field]
        words = WORDS[name](Reason(code=code, params=dict.fromkeys(names, 7)))
        assert words not in (None, code)


def test_parameters_are_shown_as_people_read_them() -> None:
    assert wait_words(waiting("no_capacity", slots=1)) == (
        "Waiting for 1 slot: every node that fits is busy."
    )
    assert wait_words(waiting("gang_too_large", slots=9)) == (
        "No node of the pool has 9 slots. The job waits until one is added."
    )
    assert skip_words(skipping("blob_missing")) == "a file of it is not in object storage"
    assert (hours(1), hours(3_600_000), money(1_234_567)) == ("0.01", "1.00", "1.24")
    assert (hours(35_999, down=True), money(1_234_567, down=True)) == ("0.00", "1.23")


def test_unknown_codes_and_missing_parameters_are_shown_verbatim() -> None:
    assert wait_words(None) is None
    assert wait_words(Reason(code="not_known_yet")) == "not_known_yet"
    assert wait_words(Reason(code="no_capacity")) == "no_capacity"


def test_refusals_say_what_is_wrong_where_and_what_to_do() -> None:
    limit = refusing("hard_limit", hold_gpu_ms=3_600_001, left_gpu_ms=5, limit_gpu_ms=7_200_000)
    assert refusal_words(limit) == (
        "The job may need 1.01 GPU-hours, and 0.00 of this month's 2.00 are neither used nor held. "
        "Train on fewer rows or epochs, wait for running jobs to release theirs, or ask for a "
        "higher limit."
    )
    models = {"file_id": "file-1", "models": "ft:a, ft:b", "model": "ft:a"}
    assert refusal_words(refusing("file_used_by_models", **models, others=2)) == (
        "File file-1 is in the lineage of ft:a, ft:b and 2 more. Delete the models first: "
        "DELETE /v1/models/ft:a?erase=true. Without erase=true a model can be restored for 30 "
        "days, and keeps its files."
    )
    assert "ft:a, ft:b. Delete" in refusal_words(
        refusing("file_used_by_models", **models, others=0)
    )
    unknown = refusal_words(refusing("event_types_unknown", types="job.exploded"))
    assert "job.exploded" in unknown
    assert "fine_tuning.job.succeeded" in unknown
    assert "held by a," in refusal_words(refusing("stage_taken", stage="production", holder="a"))
    assert "key_1" in refusal_words(refusing("key_revoked", key_id="key_1"))


def test_a_budget_never_looks_as_large_as_what_is_needed() -> None:
    hours_needed = refusing("budget_gpu_hours", hold_gpu_ms=3_600_001, budget_gpu_ms=3_600_000)
    assert "need up to 1.01 GPU-hours" in refusal_words(hours_needed)
    assert "budget is 1.00." in refusal_words(hours_needed)
    amount = refusing(
        "budget_amount", price_max_micro=2_000_001, currency="EUR", budget_micro=2_000_000
    )
    assert "need up to 2.01 EUR" in refusal_words(amount)
    assert "budget is 2.00." in refusal_words(amount)


def test_a_rejected_file_is_worded_as_openai_does() -> None:
    few = rejecting("rows_too_few", rows=7, limit=10, file_id="file-1")
    sentence = "Training file has 7 example(s), but must have at least 10 examples."
    assert file_words(few) == sentence
    assert failure_words(Failure(code="invalid_n_examples", reason=few)) == (
        f"The job failed due to an invalid training file. {sentence} "
        "GET /v1/files/file-1/validation lists every problem."
    )


def test_the_first_error_of_a_file_is_named_and_the_others_are_counted() -> None:
    meaning = CATALOGUE["invalid_json"].meaning
    row = rejecting("row_invalid", row=2, finding="invalid_json", errors=3)
    assert file_words(row) == (
        f"Invalid file format. Example 2: {meaning} (invalid_json). 3 errors in all."
    )
    alone = replace(row, params={**row.params, "errors": 1})
    assert file_words(alone) == f"Invalid file format. Example 2: {meaning} (invalid_json)."
    whole = rejecting("file_invalid", finding="of_a_newer_validator", errors=1_500)
    assert file_words(whole) == ("Invalid file format. of_a_newer_validator. 1500 errors in all.")


def test_a_failure_names_its_fix() -> None:
    lost = failure_words(
        Failure(code="attempts_exhausted", reason=failing("attempts_lost", attempts=20))
    )
    assert lost.startswith("Given up: 20 attempts in a row")
    memory = failure_words(Failure(code="out_of_memory", reason=failing("memory_exceeded")))
    assert "max_length" in memory
    held = Failure(code="x", reason=refusing("file_rejected"))
    assert failure_words(held) == REFUSALS["file_rejected"]


def test_a_verdict_has_its_figures_and_its_advice() -> None:
    shown = judging("drop_shown", change_ppm=-159_090, items=220, p_ppm=1_234, drop_max_ppm=20_000)
    assert verdict_words(shown) == (
        "-15.9 points on 220 general questions: the drop is above the 2 points that are allowed, "
        "and chance is ruled out (p = 0.0012)"
    )
    assert advice_words(SUMMARY) is None
    assert advice_words(replace(SUMMARY, verdict="block")) == ADVICE["block"]
    assert advice_words(replace(SUMMARY, verdict="inconclusive")) == ADVICE["inconclusive"]
    rising = replace(SUMMARY, reasons=(judging("validation_loss_rose"),))
    assert advice_words(rising) == OVERFITTED
    same = replace(SUMMARY, reasons=(judging("validation_loss_same"),))
    assert advice_words(same) == UNTRAINED
    broken = judging("scores_not_finite", sides="adapter")
    assert advice_words(replace(SUMMARY, verdict="block", reasons=(broken,))) == NOT_FINITE
    assert verdict_words(broken) == "scores are infinite or not a number: adapter"


def test_a_wrong_hyper_parameter_names_its_range() -> None:
    base = SUBMITTED.spec.base
    named = problems({"n_epochs": 0, "dropout": 2.5, "speed": 3, "precision": "int4"}, base)
    epochs, dropout, speed, precision = (parameter_words(problem.reason) for problem in named)
    assert epochs == 'must be a whole number from 1 to 50, or "auto"; it is 0'
    assert dropout == 'must be a number from 0 to 0.9, or "auto"; it is 2.5'
    assert speed.startswith("unknown hyper-parameter; known: n_epochs, ")
    assert precision == "must be one of auto, bf16, fp32, fp8"


def test_every_wait_is_in_the_guide_and_says_what_ends_it() -> None:
    guide = Path(__file__).parents[4] / "docs" / "how-to" / "why-a-job-waits.md"
    rows = [line for line in guide.read_text().splitlines() if line.startswith("| `")]
    assert {code for row in rows for code in re.findall(r"`(\w+)`", row.split("|")[1])} == {*WAITS}
    ends_itself = {"draining", "scoring", "judging", "publishing"}
    assert {*WAITS} - {*UNBLOCKS} == ends_itself
    assert unblock_words(waiting("topology", slots=2)) == (
        "Running jobs end until one node has 2 slots free."
    )
    assert unblock_words(waiting("judging")) is None
    assert unblock_words(None) is None


def test_first_hour_15_a_verdict_says_its_rule() -> None:
    """ "pass: -4.4 points on 249 items, one-sided p of a drop = 0.0133" looked like a mistake."""
    figures = {"change_ppm": -44_000, "items": 249, "p_ppm": 13_300, "drop_max_ppm": 100_000}
    assert verdict_words(judging("drop_excluded", **figures, bound_ppm=77_400)) == (
        "-4.4 points on 249 general questions: at worst a drop of 7.7 points (95 %), and 10 are "
        "allowed"
    )
    assert verdict_words(judging("drop_undecided", **figures, bound_ppm=120_000)).endswith(
        "the drop may be as much as 12.0 points (95 %), and 10 are allowed"
    )
    better = judging("drop_excluded", **{**figures, "change_ppm": 50_000}, bound_ppm=-10_000)
    assert "at worst a drop of 0.0 points" in verdict_words(better)


@pytest.mark.parametrize("code", ["drop_excluded", "drop_undecided"])
def test_first_hour_15_a_verdict_of_before_has_words(code: VerdictCode) -> None:
    older = judging(code, change_ppm=-44_000, items=249, p_ppm=13_300)
    assert verdict_words(older).startswith("-4.4 points on 249 general questions: ")


def test_first_hour_15_gains_on_the_tenants_rows_are_shown() -> None:
    """`job show` never said that the loss fell from 3.67 to 0.08."""
    learnt = replace(
        SUMMARY,
        base_loss_ppm=3_670_000,
        adapter_loss_ppm=80_000,
        base_exact_match_ppm=0,
        adapter_exact_match_ppm=670_000,
    )
    assert own_data_words(learnt) == "loss 3.67 → 0.08, exact answers 0 % → 67 %"
    without = replace(learnt, base_exact_match_ppm=-1, adapter_exact_match_ppm=-1)
    assert own_data_words(without) == "loss 3.67 → 0.08"
    assert own_data_words(replace(without, base_loss_ppm=-1, adapter_loss_ppm=-1)) is None


def test_names_that_there_are_end_the_sentence() -> None:
    """The names were run together with what the job asks for."""
    asked = waiting("no_domain", domain="rack-9", domains="rack-0, rack-1")
    words = "No node that fits is in the domain rack-9; there are rack-0, rack-1."
    assert wait_words(asked) == words
    silent = waiting("no_accelerator", accelerator="h200", accelerators="")
    assert wait_words(silent) == "No node of the pool has h200 devices."
