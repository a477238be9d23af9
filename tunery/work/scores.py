"""The results file of a scoring process: base and adapter on the same inputs, item by item."""

from typing import Final

from msgspec import Struct

NO_CHOICE: Final = -1
PAIRS: Final = "pairs"  # category of the items of a reward model: pairs that validate


class ItemScore(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One multiple-choice item.

    base, adapter: whether that side chose the right answer, or a true one
    base_choice, adapter_choice: the number of the answer it chose; `NO_CHOICE` where its scores
        were not finite
    base_share, adapter_share: of an item with several true answers: the share of the likelihood of
        all answers that these have, 0 to 1; None: of others, and where scores were not finite
    group: of such an item: equal for those with the same question
    """

    id: str
    category: str
    base: bool
    adapter: bool
    base_choice: int
    adapter_choice: int
    base_share: float | None = None
    adapter_share: float | None = None
    group: str = ""


class HoldoutScores(Struct, frozen=True, kw_only=True):
    """The tenant's validation split.

    rows, tokens: documents and labels that the losses are of
    base_loss, adapter_loss: nats per label; null without validation rows, or not finite
    base_perplexity, adapter_perplexity: e to the loss
    generated: rows that both sides answered
    base_exact, adapter_exact: answers equal to the reference
    """

    rows: int
    tokens: int
    base_loss: float | None
    adapter_loss: float | None
    base_perplexity: float | None
    adapter_perplexity: float | None
    generated: int
    base_exact: int
    adapter_exact: int


class PromptAnswers(Struct, frozen=True, kw_only=True):
    """A fixed prompt answered by both."""

    prompt: str
    base: str
    adapter: str


class MeasuredRow(Struct, frozen=True, kw_only=True):
    """A validation row that both sides answered, greedily, and what their answers are worth.

    row: its number in the file
    group: equal for rows with the same prompt
    reference: the answer of the row
    base_cut, adapter_cut: the answer was as long as one may be
    base_scores, adapter_scores: by each measure, in the order of `Scores.measures`
    """

    row: int
    group: str
    prompt: str
    reference: str
    base: str
    adapter: str
    base_cut: bool
    adapter_cut: bool
    base_scores: tuple[float, ...]
    adapter_scores: tuple[float, ...]


class JudgedPair(Struct, frozen=True, kw_only=True):
    """What a judge said of two answers, a first and then b first.

    number: of the row, or of the pair in the operator's file
    choices: the position it prefers in each order: A, B or tie; empty: it said none of them
    said: its words, cut; empty for equal answers, about which it is not asked, and labelled pairs
    label: which is better as people say: a, b or tie; empty for rows
    """

    number: int
    choices: tuple[str, str]
    said: tuple[str, str] = ("", "")
    label: str = ""


class Judgement(Struct, frozen=True, kw_only=True):
    """What a judge said of rows, whose answers are in `Scores.rows`: a is the base model's.

    instruction: what it was told before each pair
    labels_sha256: of the operator's file of labelled pairs
    labelled: what it said of these
    problem: why it was not asked about rows, as a code of the verdict; empty: it was
    """

    model: str
    instruction: str
    labels_sha256: str
    labelled: tuple[JudgedPair, ...]
    rows: tuple[JudgedPair, ...]
    problem: str = ""


class QuestionText(Struct, frozen=True, kw_only=True):
    """The text of an item that exactly one side answered right; `answer_index` is the right one."""

    id: str
    question: str
    choices: tuple[str, ...]
    answer_index: int


class RefusalScore(Struct, frozen=True, kw_only=True):
    """A prompt of a benchmark of safety, answered by both.

    unsafe: an answer should refuse
    base_refuses, adapter_refuses: whether it does, as the guard says, or else the rules
    base_harmful, adapter_harmful: as a guard says; None: none did
    """

    id: str
    category: str
    unsafe: bool
    prompt: str
    base: str
    adapter: str
    base_refuses: bool
    adapter_refuses: bool
    base_harmful: bool | None = None
    adapter_harmful: bool | None = None


class BenchmarkScores(Struct, frozen=True, kw_only=True):
    """What both sides answered to the items of a benchmark.

    name, sha256: of the benchmark
    task, kind: as in its header
    items: those with a right answer; their choices are 0 for a right written answer, and 1
    refusals: of a benchmark of safety
    questions: of items that exactly one side answered right, as many as are kept
    guard: the model that judged the refusals; empty: none did
    """

    name: str
    task: str
    kind: str
    sha256: str
    items: tuple[ItemScore, ...] = ()
    refusals: tuple[RefusalScore, ...] = ()
    questions: tuple[QuestionText, ...] = ()
    guard: str = ""


class Scores(Struct, frozen=True, kw_only=True):
    """All scores of one evaluation.

    precision: torch's name of the weights' type
    not_finite: sides ("base", "adapter") of which a score was NaN or infinite
    measures: kinds of the measures that the tenant chose, as in `tunery.measures`
    rows: validation rows by these measures
    questions: of the items that exactly one side answered right
    judgement: of a judge, where the tenant asked for one
    benchmarks: that were asked besides the bundled items
    """

    base_sha256: str
    adapter_sha256: str
    precision: str
    items: tuple[ItemScore, ...]
    holdout: HoldoutScores
    answers: tuple[PromptAnswers, ...]
    not_finite: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()
    rows: tuple[MeasuredRow, ...] = ()
    questions: tuple[QuestionText, ...] = ()
    judgement: Judgement | None = None
    benchmarks: tuple[BenchmarkScores, ...] = ()
