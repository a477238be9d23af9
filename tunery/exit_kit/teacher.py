"""Answers of the old models, asked for once, within a budget in money.

`teacher.jsonl` has a line before each request, with the most that it can cost, and a line after it.
A request whose end is not there counts with its most: a killed run never makes room in the budget.
"""

import json
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from fnmatch import fnmatchcase
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import msgspec

from tunery.comparison.models import ANSWER_TOKENS_MAX, HeldOutQuestion
from tunery.comparison.page import dollars
from tunery.exit_kit.account import AGAIN, Limited, NotToBeHad, OpenAIAccount, Unsure
from tunery.exit_kit.folder import ExportFolder, append_line, read_lines
from tunery.exit_kit.plan import PlannedJob
from tunery.exit_kit.questions import QUESTIONS_MAX, questions_of
from tunery.local.errors import LocalError

TABLE: Final = Path(__file__).with_name("prices.toml")
FILE: Final = "teacher.jsonl"
MESSAGE_TOKENS_MAX: Final = 16  # that a message has beside its text; a token of text has a byte
ATTEMPTS_MAX: Final = 4  # of a question in one run
WAIT_S_MAX: Final = 60.0
Say = Callable[[str], None]


class AnswerPrice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """US dollars for a million tokens of models; a name may have * in it."""

    models: list[str]
    input: Decimal
    output: Decimal

    def micro(self, input_tokens: int, output_tokens: int) -> int:
        """Return the price of a request in millionths of a dollar, rounded up."""
        exact = self.input * input_tokens + self.output * output_tokens
        return int(exact.to_integral_value(ROUND_CEILING))


class AskedJob(msgspec.Struct, frozen=True):
    """The old model of a planned job, and its held-out questions."""

    job_id: str
    model: str
    questions: list[HeldOutQuestion]


def asked_jobs(planned: Sequence[PlannedJob]) -> list[AskedJob]:
    """Return the questions of planned jobs, from rows that are parsed. Raises OSError."""
    return [
        AskedJob(job.job_id, job.tuned_model, questions_of(job.questions))
        for job in planned
        if job.questions is not None and job.tuned_model
    ]


class _Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    price: list[AnswerPrice] = []


class TeacherAnswers(msgspec.Struct, frozen=True):
    """What became of the questions of a job.

    most_micro: what the questions without an answer can cost, in millionths of a dollar
    reason: why some have no answer; None: all have one
    """

    job_id: str
    model: str
    questions: int
    answered: int
    spent_micro: int
    most_micro: int
    reason: str | None


def prices(own: Path | None) -> list[AnswerPrice]:
    """Return the rows of the table, the operator's own first. Raises LocalError."""
    rows: list[AnswerPrice] = []
    for path in (own, TABLE):
        if path is None:
            continue
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
            rows += msgspec.convert(table, _Prices, strict=False).price
        except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
            fix = 'write [[price]] with models = ["ft:gpt-4o-mini*"], input = 0.30, output = 1.20'
            raise LocalError(f"{path} is no table of prices: {error}", fix) from None
    return rows


class TeacherLedger:
    """What `teacher.jsonl` of a folder says.

    answers: by model and question; refused: questions that a model cannot be asked
    spent: by model, in millionths of a dollar
    """

    def __init__(self, folder: ExportFolder) -> None:
        self._path = folder.root / FILE
        self.answers: dict[tuple[str, str], str] = {}
        self.refused: dict[tuple[str, str], str] = {}
        self.spent: dict[str, int] = {}
        for line in read_lines(self._path):
            self._add(line)

    @property
    def spent_micro(self) -> int:
        return sum(self.spent.values())

    def add(self, model: str, question: HeldOutQuestion, **fields: Any) -> None:
        """Record a request or its end. Raises OSError."""
        line = {"model": model, "question": question.id, **fields}
        append_line(self._path, line)
        self._add(line)

    def _add(self, line: Mapping[str, Any]) -> None:
        key = (line["model"], line["question"])
        # a request is counted with its most, and its end takes back what it did not cost
        self.spent[key[0]] = self.spent.get(key[0], 0) + line["micro"]
        if "answer" in line:
            self.answers[key] = line["answer"]
        if "refused" in line:
            self.refused[key] = line["refused"]


class Teacher:
    """The old models of the planned jobs, and what it costs to ask them.

    budget_micro: the most that all questions of the folder may cost, also those of earlier runs
    """

    def __init__(
        self, folder: ExportFolder, asked: Sequence[AskedJob], table: Sequence[AnswerPrice]
    ) -> None:
        self.ledger = TeacherLedger(folder)
        self._table = table
        self._questions = asked
        self._reasons: dict[str, str] = {}

    def ask(self, account: OpenAIAccount, budget_micro: int, say: Say) -> None:
        """Ask what has no answer yet, each model in turn, while the budget lasts.

        Raises LocalError, OSError: the same call again goes on where this one ended.
        """
        number = 0
        for model, question in self._open():
            if model in self._reasons:
                continue
            try:
                self._answer(account, model, question, budget_micro)
            except NotToBeHad as error:
                self._reasons[model] = str(error)
                continue
            number += 1
            if number % 10 == 0:
                say(f"{number:,} questions answered, {dollars(self.ledger.spent_micro)} spent")

    def outcome(self) -> list[TeacherAnswers]:
        """Return what became of the questions of each job."""
        return [self._outcome(job) for job in self._questions]

    def _outcome(self, job: AskedJob) -> TeacherAnswers:
        model, questions = job.model, job.questions
        ledger, price = self.ledger, price_of(model, self._table)
        answered = sum((model, question.id) in ledger.answers for question in questions)
        refused = [
            ledger.refused[key]
            for question in questions
            if (key := (model, question.id)) in ledger.refused
        ]
        closed = ledger.answers.keys() | ledger.refused.keys()
        left = [question for question in questions if (model, question.id) not in closed]
        reason = self._reasons.get(model)
        if price is None and left:
            reason = f"no price is named for {model}: add it to a file for --prices"
        elif left and reason is None:
            reason = "the others were not asked"
        return TeacherAnswers(
            job_id=job.job_id,
            model=model,
            questions=len(questions),
            answered=answered,
            spent_micro=ledger.spent.get(model, 0),
            most_micro=0
            if price is None
            else sum(most_micro(question, price) for question in left),
            reason=reason or next(iter(refused), None),
        )

    def _open(self) -> Iterator[tuple[str, HeldOutQuestion]]:
        """Yield the first open question of each model, then the second ones."""
        turns = [[(job.model, question) for question in job.questions] for job in self._questions]
        for turn in zip_longest(*turns):
            for asked in turn:
                if asked is None:
                    continue
                key = (asked[0], asked[1].id)
                if key not in self.ledger.answers and key not in self.ledger.refused:
                    yield asked

    def _answer(
        self, account: OpenAIAccount, model: str, question: HeldOutQuestion, budget_micro: int
    ) -> None:
        """Ask a question once. Raises NotToBeHad where the model answers none."""
        price = price_of(model, self._table)
        if price is None:
            raise NotToBeHad(f"no price is named for {model}: add it to a file for --prices")
        most = most_micro(question, price)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            if self.ledger.spent_micro + most > budget_micro:
                raise NotToBeHad("the budget has no room for the others")
            self.ledger.add(model, question, micro=most)
            try:
                answer = account.answer(model, question.messages, question.tools, ANSWER_TOKENS_MAX)
            except Limited as error:
                self.ledger.add(model, question, micro=-most)  # what is refused costs nothing
                if attempt == ATTEMPTS_MAX:
                    raise LocalError(str(error), f"wait some minutes; {AGAIN}") from None
                time.sleep(min(error.wait_s, WAIT_S_MAX))
            except Unsure as error:  # it may have been answered and billed: its most stays counted
                if attempt == ATTEMPTS_MAX:
                    raise LocalError(str(error), f"wait some minutes; {AGAIN}") from None
            except NotToBeHad as error:
                self.ledger.add(model, question, micro=-most)
                if error.status == 400:  # this question, and not the model
                    self.ledger.add(model, question, micro=0, refused=str(error))
                    return
                raise
            else:
                usage = answer["usage"]
                cost = price.micro(usage["prompt_tokens"], usage["completion_tokens"])
                self.ledger.add(
                    model, question, micro=cost - most, answer=answer["text"], usage=usage
                )
                return


def price_of(model: str, table: Sequence[AnswerPrice]) -> AnswerPrice | None:
    matching = (row for row in table if any(fnmatchcase(model, name) for name in row.models))
    return next(matching, None)


def most_micro(question: HeldOutQuestion, price: AnswerPrice) -> int:
    """Return the most that a question can cost: no token has less than a byte."""
    text = json.dumps([question.messages, question.tools], ensure_ascii=False)
    count = len(text.encode()) + MESSAGE_TOKENS_MAX * (len(question.messages) + 1)
    return price.micro(count, ANSWER_TOKENS_MAX)


def most_of_file_micro(size: int, price: AnswerPrice) -> int:
    """Return the most that the questions of a file of so many bytes can cost.

    A token has at least a byte, and the JSON around a message more than it adds in tokens.
    """
    return price.micro(size, QUESTIONS_MAX * ANSWER_TOKENS_MAX)
