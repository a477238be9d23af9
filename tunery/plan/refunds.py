"""Refunds when an attempt or a job ends early: one row per class of failure.

Credits are of GPU time, and take back the newest of what the job is charged, each in the hour of
its use. `table` is a section of docs/reference/billing.md.

Memory that runs out is always our error: `tunery.plan.memory` estimates it from the base model and
the hyper-parameters alone, and no request can say that a job fits although the estimate denies it.
Time is our error in part: a grader or a long answer may take longer than anyone can know. So a job
that has used up its hold, three times what was estimated, costs what was estimated at most.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from schemas import errors
from schemas.pool import CreditCause, EndAuthor, Role
from schemas.training import AttemptOutcome, FailureCause

#: how an attempt ended: what became of it, the cause of its failure, or by its tenant's wish
AttemptClass: TypeAlias = Literal["succeeded", "not_started", "lost", "preempted", "tenant"]
#: how much is given back
Scope: TypeAlias = Literal["nothing", "since_checkpoint", "attempt", "above_estimate", "job"]


class Refund(NamedTuple):
    """Refund for one class of failure."""

    scope: Scope  # how much
    cause: CreditCause | None  # cause of the credit on its ledger lines; None: there are none
    meaning: str  # the failure in words


ATTEMPTS: Final[Mapping[AttemptClass | FailureCause, Refund]] = {
    "lost": Refund("since_checkpoint", "lost", "the machine was lost, replaced, or left"),
    "preempted": Refund(
        "since_checkpoint", "preempted", "anyone but the tenant stopped it, such as the scheduler"
    ),
    "bad_node": Refund("since_checkpoint", "bad_node", "the machine failed, or no step was made"),
    "platform": Refund("since_checkpoint", "platform", "another part of Tunery failed"),
    "oom": Refund("attempt", "oom", "memory ran out although the estimate said that it fits"),
    "tenant": Refund("nothing", None, "its tenant paused or cancelled the job"),
    "budget": Refund("nothing", None, "the use that its hold allows was up"),
    "divergence": Refund("nothing", None, "the loss became infinite or not a number"),
    "nothing_learnt": Refund(
        "nothing", None, "its steps taught nothing, and its tenant wanted it to stop then"
    ),
    "bad_data": Refund("nothing", None, "a row of the training file cannot be trained on"),
    "user": Refund("nothing", None, "the request was wrong"),
    "succeeded": Refund("nothing", None, "it did what it was asked to"),
    "not_started": Refund("nothing", None, "it never ran, so nothing is billed"),
}
SERVED: Final = Refund("nothing", None, "a replica answered until it ended")
JOBS: Final[Mapping[str, Refund]] = {
    errors.PLATFORM: Refund(
        "job",
        "platform_error",
        "scores could not be judged, or the adapter could not be published",
    ),
    errors.ATTEMPTS_EXHAUSTED: Refund(
        "job", "attempts_exhausted", "too many attempts in a row failed for the platform's reasons"
    ),
    errors.BUDGET_EXHAUSTED: Refund(
        "above_estimate", "estimate_exceeded", "it used up its hold before it had a result"
    ),
}
SCOPES: Final[Mapping[Scope, str]] = {
    "nothing": "nothing",
    "since_checkpoint": "work since the last checkpoint",
    "attempt": "the whole attempt",
    "above_estimate": "time above the estimate",
    "job": "the whole job",
}


class RefundRule(NamedTuple):
    """Explanation of invoice lines with one cause of credits."""

    cause: CreditCause  # cause on the line
    meaning: str  # what happened, in words
    given_back: str  # how much is credited for it


#: Credits that are due besides those of the failure itself.
CORRECTIONS: Final[Mapping[CreditCause, RefundRule]] = {
    rule.cause: rule
    for rule in (
        RefundRule(
            "skipped_checkpoint",
            "a checkpoint could not be used to go on",
            "work since the checkpoint before it",
        ),
        RefundRule(
            "correction",
            "its process ended before its agent's heartbeats stopped counting it",
            "the time in between",
        ),
    )
}
RULES: Final[Mapping[CreditCause, RefundRule]] = {
    **{
        refund.cause: RefundRule(refund.cause, refund.meaning, SCOPES[refund.scope])
        for refund in (*ATTEMPTS.values(), *JOBS.values())
        if refund.cause is not None
    },
    **CORRECTIONS,
}


def applied_rules(causes: Iterable[str]) -> tuple[RefundRule, ...]:
    """The rules that these causes of credits are of, each once, in the order of the table."""
    applied = set(causes)
    return tuple(rule for cause, rule in RULES.items() if cause in applied)


def attempt_refund(
    outcome: AttemptOutcome, ended_by: EndAuthor, cause: FailureCause | None, role: Role = "train"
) -> Refund:
    """Return the refund for the end of an attempt. A failure without a cause is the platform's.

    The answers of a replica are not lost with it, so its end gives no refund.
    """
    if role == "serve":
        return SERVED
    if outcome == "failed":
        return ATTEMPTS[cause or "platform"]
    return ATTEMPTS["tenant" if outcome == "preempted" and ended_by == "tenant" else outcome]


def job_refund(code: str) -> Refund | None:
    """Return the refund for a failed job; None: only the credits of its attempts."""
    return JOBS.get(code)


def table() -> str:
    """Both tables as Markdown."""
    rows: list[tuple[str, str, Refund]]
    rows = [("attempt", name, refund) for name, refund in ATTEMPTS.items()]
    rows += [("job", code, refund) for code, refund in JOBS.items()]
    lines = [
        f"| {what} | `{name}` | {refund.meaning} | {SCOPES[refund.scope]} "
        f"| {f'`{refund.cause}`' if refund.cause else ''} |"
        for what, name, refund in rows
    ]
    head = "| what ended | class | meaning | given back | cause on the line |"
    return "\n".join((head, "|---|---|---|---|---|", *lines))
