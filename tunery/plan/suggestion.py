"""What to train with a file: method, base model and risks, each with its reason.

The rules read what the service measured: the report of the file, and a plan for each base model.
Settings are the plan's own.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from schemas.dataset import RowKind
from schemas.training import MethodName
from schemas.units import MICRO
from tunery.plan.methods import rows_of_dialect

#: the method that is tried first for each kind of row, and why
FIRST_METHOD: Final[Mapping[RowKind, tuple[MethodName, str]]] = {
    "answers": ("supervised", "each row shows the answer to learn"),
    "pairs": ("dpo", "each row has a better and a worse answer to one prompt"),
    "labels": ("kto", "each row has an answer that is labelled good or bad"),
    "prompts": ("reinforcement", "rows have prompts without answers, which a grader judges"),
}
ROWS_FEW: Final = 50  # OpenAI's guide: gains begin at 50 to 100 rows
STEPS_FEW: Final = 60  # a job is warned of as having learnt nothing after as many
DISTINCT_SHARE_MIN: Final = 0.9
ANSWER_SHARE_MIN: Final = 0.05
SMALL_PARAMETERS: Final = 1_000_000_000
PRICE_SPREAD_MAX: Final = 4


class Candidate(msgspec.Struct, frozen=True):
    """A base model, and the service's plan of training it with the file."""

    base_id: str
    parameters: int
    plan: Mapping[str, Any] | None  # None: the request was refused
    refusal: str | None = None  # why it would be refused

    @property
    def problem(self) -> str | None:
        """Why this base model cannot be trained with the file; None: it can."""
        if self.plan is None:
            return self.refusal
        refusals = self.plan["refusals"]
        return refusals[0]["message"] if refusals else None

    @property
    def amount_micro(self) -> int:
        return int((self.plan or {})["estimate"]["amount_micro"])

    @property
    def currency(self) -> str:
        return str((self.plan or {})["estimate"]["currency"])


class BaseChoice(msgspec.Struct, frozen=True):
    """The base model to begin with, and what is wrong with each other one."""

    chosen: Candidate | None
    why: str
    others: Mapping[str, str]  # reason by base model


def method_for(dialect: str) -> tuple[MethodName, str]:
    """Return the method to try first for rows of this dialect, and why."""
    return FIRST_METHOD[rows_of_dialect(dialect)]


def choose_base(candidates: Iterable[Candidate], budget_micro: int | None = None) -> BaseChoice:
    """Choose the largest base model that the service would train within a budget.

    budget_micro: what the job may be expected to cost, in millionths of the tenant's currency
    """
    ordered = sorted(candidates, key=lambda each: (-each.parameters, each.base_id))
    chosen, others = None, dict[str, str]()
    for each in ordered:
        if each.problem is not None:
            others[each.base_id] = each.problem
        elif budget_micro is not None and each.amount_micro > budget_micro:
            price = f"{each.amount_micro / MICRO:.2f} {each.currency}"
            others[each.base_id] = f"about {price}, above the budget"
        elif chosen is None:
            chosen = each
        else:
            others[each.base_id] = f"smaller than {chosen.base_id}"
    if chosen is None:
        return BaseChoice(None, "no registered base model can be trained with this file", others)
    within = "" if budget_micro is None else ", within the budget"
    why = f"the largest of {len(ordered)} registered that nodes here can train{within}"
    return BaseChoice(chosen, why, others)


def risks_of(
    report: Mapping[str, Any], base: Candidate | None, method: MethodName
) -> list[tuple[str, str]]:
    """Return what may go wrong, each with what to do about it.

    report: of the file's validation, as the API answers it
    """
    return [*_risks_of_rows(report), *([] if base is None else _risks_of_plan(base, method))]


def _risks_of_rows(report: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    rows = report["rows"]
    if rows < ROWS_FEW:
        yield (
            f"{rows} rows teach a form at most",
            f"collect {ROWS_FEW} to 100 good ones, as unlike each other as the questions will be",
        )
    if report["distinct_rows"] < DISTINCT_SHARE_MIN * rows:
        repeated = rows - report["distinct_rows"]
        yield f"{repeated} of {rows} rows repeat others", "remove them: they weigh more than meant"
    tokens = report.get("tokens")
    if tokens and tokens["trainable_tokens"] < ANSWER_SHARE_MIN * tokens["tokens"]:
        share = tokens["trainable_tokens"] / tokens["tokens"]
        yield (
            f"{share:.1%} of the tokens are answers",
            "shorten the prompts: they are paid for and not learnt",
        )
    first = {finding["code"]: finding for finding in reversed(report["warnings"])}
    for code, finding in sorted(first.items()):
        count = report["counts"].get(code, 1)
        yield f"row {finding['row']}: {finding['message']} ({code}, {count})", finding["hint"]
    if report["not_looked_for"]:
        words = ", ".join(report["not_looked_for"])
        yield f"not looked for: {words}", "an operator can switch these checks on"


def _risks_of_plan(base: Candidate, method: MethodName) -> Iterable[tuple[str, str]]:
    estimate = (base.plan or {})["estimate"]
    if base.parameters < SMALL_PARAMETERS:
        yield (
            f"{base.base_id} has {base.parameters / 1e6:,.0f} M parameters",
            "it learns forms and styles; for knowledge and reasoning add a larger base model",
        )
    if estimate["steps"] < STEPS_FEW:
        yield (
            f"{estimate['steps']} steps may not be enough to learn from",
            "add rows or epochs",
        )
    if estimate["amount_max_micro"] > PRICE_SPREAD_MAX * estimate["amount_micro"]:
        yield (
            f"up to {estimate['amount_max_micro'] / MICRO:.2f} {estimate['currency']} are held",
            "unused money is released at the end; the estimate narrows as the pool sees jobs",
        )
    if method == "reinforcement":
        yield (
            "answers are only as good as the grader",
            "try it on a few answers first: `tunery grader run`",
        )
