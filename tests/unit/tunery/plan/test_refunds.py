"""Refunds: every class of failure has its row, and the documentation shows the same table."""

from inspect import signature
from pathlib import Path
from typing import get_args

import pytest

from schemas import errors
from schemas.pool import CreditCause, EndAuthor
from schemas.submission import JobSpec
from schemas.training import AttemptOutcome, FailureCause, HyperParameters
from services.gateway.jobs.domain.bodies import FineTuningRequest, JobRequest, SimpleJobRequest
from services.gateway.web.domain.bodies import Body
from tunery.plan.memory import memory_bytes
from tunery.plan.refunds import (
    ATTEMPTS,
    CORRECTIONS,
    JOBS,
    RULES,
    applied_rules,
    attempt_refund,
    job_refund,
    table,
)

ROOT = Path(__file__).resolve().parents[4]


def test_every_end_of_an_attempt_has_its_row() -> None:
    ends = (*get_args(AttemptOutcome), *get_args(FailureCause), "tenant")
    assert set(ATTEMPTS) == set(ends) - {"failed"}


def test_every_cause_of_a_credit_is_of_one_row() -> None:
    causes = [refund.cause for refund in (*ATTEMPTS.values(), *JOBS.values()) if refund.cause]
    assert sorted((*causes, *CORRECTIONS)) == sorted(get_args(CreditCause))
    assert {rule.cause for rule in RULES.values()} == set(get_args(CreditCause))


def test_the_rules_of_an_invoice_are_those_of_its_credits() -> None:
    applied = applied_rules(["correction", "", "lost", "lost", "unheard of"])
    assert [(rule.cause, rule.given_back) for rule in applied] == [
        ("lost", "work since the last checkpoint"),
        ("correction", "the time in between"),
    ]


@pytest.mark.parametrize(
    ("outcome", "ended_by", "cause", "credited"),
    [
        ("lost", "node", None, "lost"),
        ("preempted", "scheduler", None, "preempted"),
        ("preempted", "tenant", None, None),
        ("failed", "training", "oom", "oom"),
        ("failed", "training", "user", None),
        ("failed", "platform", None, "platform"),
        ("failed", "tenant", "platform", "platform"),
        ("succeeded", "training", None, None),
    ],
)
def test_known_ends(
    outcome: AttemptOutcome,
    ended_by: EndAuthor,
    cause: FailureCause | None,
    credited: CreditCause | None,
) -> None:
    assert attempt_refund(outcome, ended_by, cause).cause == credited


def test_what_a_replica_has_answered_is_not_given_back() -> None:
    for outcome in ("lost", "preempted", "failed"):
        assert attempt_refund(outcome, "platform", None, "serve").scope == "nothing"


def test_money_a2_no_request_overrides_the_estimate_of_memory() -> None:
    """So an attempt that ran out of memory is the platform's error, whatever was asked for."""
    requests: tuple[type[Body], ...] = (JobRequest, SimpleJobRequest, FineTuningRequest)
    fields = {name for request in requests for name in request.model_fields}
    resolved = {*JobSpec.__struct_fields__, *HyperParameters.__struct_fields__}
    assert [name for name in fields | resolved if "memory" in name or "force" in name] == []
    parameters = {"base", "hyper", "device", "tokens", "ranks"}
    assert set(signature(memory_bytes).parameters) == parameters
    assert ATTEMPTS["oom"].scope == "attempt"


def test_whole_jobs_are_given_back_for_the_platforms_reasons_alone() -> None:
    whole = {code for code, refund in JOBS.items() if refund.scope == "job"}
    assert whole == {errors.PLATFORM, errors.ATTEMPTS_EXHAUSTED}
    billed = (errors.USER_ERROR, errors.BAD_DATA, errors.DIVERGED, errors.OUT_OF_MEMORY)
    assert [job_refund(code) for code in billed] == [None] * len(billed)


def test_the_documentation_shows_the_table() -> None:
    assert table() in (ROOT / "docs" / "reference" / "billing.md").read_text(encoding="utf-8")
