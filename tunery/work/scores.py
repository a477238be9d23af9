"""The results file of a scoring process: base and adapter on the same inputs, item by item."""

from typing import Final

from msgspec import Struct

NO_CHOICE: Final = -1
PAIRS: Final = "pairs"  # category of the items of a reward model: pairs that validate


class ItemScore(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One multiple-choice item."""

    id: str
    category: str
    # base, adapter: whether that side chose the right answer, or a true one
    base: bool
    adapter: bool
    # base_choice, adapter_choice: the number of the answer it chose; `NO_CHOICE` where its scores
    # were not finite
    base_choice: int
    adapter_choice: int
    # base_share, adapter_share: share of the likelihood of all answers that the true ones have, 0
    # to 1, for an item with several true answers; None: other items, and where scores were not
    # finite
    base_share: float | None = None
    adapter_share: float | None = None
    group: str = ""  # group of such an item: equal for items with the same question


class HoldoutScores(Struct, frozen=True, kw_only=True):
    """The tenant's validation split."""

    # rows, tokens: documents and labels that the losses are of
    rows: int
    tokens: int
    # base_loss, adapter_loss: nats per label; null without validation rows, or not finite
    base_loss: float | None
    adapter_loss: float | None
    # base_perplexity, adapter_perplexity: e to the loss
    base_perplexity: float | None
    adapter_perplexity: float | None
    generated: int  # rows that both sides answered
    # base_exact, adapter_exact: answers equal to the reference
    base_exact: int
    adapter_exact: int


class PromptAnswers(Struct, frozen=True, kw_only=True):
    """A fixed prompt answered by both."""

    prompt: str
    base: str
    adapter: str


class MeasuredRow(Struct, frozen=True, kw_only=True):
    """A validation row that both sides answered, greedily, and what their answers are worth."""

    row: int  # its number in the file
    group: str  # equal for rows with the same prompt
    prompt: str
    reference: str  # the answer of the row
    base: str
    adapter: str
    # base_cut, adapter_cut: the answer was as long as one may be
    base_cut: bool
    adapter_cut: bool
    # base_scores, adapter_scores: scores by each measure, in the order of `Scores.measures`
    base_scores: tuple[float, ...]
    adapter_scores: tuple[float, ...]


class JudgedPair(Struct, frozen=True, kw_only=True):
    """Choices of a judge between two answers, shown as a, b and then as b, a."""

    number: int  # number of the row, or of the pair in the operator's file
    # the position it prefers in each order: A, B or tie; empty: it said none of them
    choices: tuple[str, str]
    # its words, cut; empty for equal answers, about which it is not asked, and labelled pairs
    said: tuple[str, str] = ("", "")
    label: str = ""  # better answer by people's judgement: a, b or tie; empty for rows


class Judgement(Struct, frozen=True, kw_only=True):
    """Judgement of rows, whose answers are in `Scores.rows`: a is the base model's."""

    model: str
    instruction: str  # the prompt before each pair
    labels_sha256: str  # hash of the operator's file of labelled pairs
    labelled: tuple[JudgedPair, ...]  # the judge's choices for the labelled pairs
    rows: tuple[JudgedPair, ...]
    problem: str = ""  # why it was not asked about rows, as a code of the verdict; empty: it was


class QuestionText(Struct, frozen=True, kw_only=True):
    """The text of an item that exactly one side answered right; `answer_index` is the right one."""

    id: str
    question: str
    choices: tuple[str, ...]
    answer_index: int


class RefusalScore(Struct, frozen=True, kw_only=True):
    """A prompt of a benchmark of safety, answered by both."""

    id: str
    category: str
    unsafe: bool  # an answer should refuse
    prompt: str
    base: str
    adapter: str
    # base_refuses, adapter_refuses: whether it does, as the guard says, or else the rules
    base_refuses: bool
    adapter_refuses: bool
    # base_harmful, adapter_harmful: verdict of a guard; None: no guard
    base_harmful: bool | None = None
    adapter_harmful: bool | None = None


class BenchmarkScores(Struct, frozen=True, kw_only=True):
    """Answers of both models to the items of a benchmark."""

    # name, sha256: name of the benchmark and hash of its file
    name: str
    # task, kind: see its header
    task: str
    kind: str
    sha256: str
    # those with a right answer; their choices are 0 for a right written answer, and 1
    items: tuple[ItemScore, ...] = ()
    refusals: tuple[RefusalScore, ...] = ()  # answers to a safety benchmark
    # texts of items that exactly one model answered right, up to a limit
    questions: tuple[QuestionText, ...] = ()
    guard: str = ""  # the model that judged the refusals; empty: none did


class Scores(Struct, frozen=True, kw_only=True):
    """All scores of one evaluation."""

    base_sha256: str
    adapter_sha256: str
    precision: str  # torch's name of the weights' type
    items: tuple[ItemScore, ...]
    holdout: HoldoutScores
    answers: tuple[PromptAnswers, ...]
    # sides ("base", "adapter") of which a score was NaN or infinite
    not_finite: tuple[str, ...] = ()
    # kinds of the measures that the tenant chose, as in `tunery.measures`
    measures: tuple[str, ...] = ()
    rows: tuple[MeasuredRow, ...] = ()  # validation rows by these measures
    # questions of the items that exactly one side answered right
    questions: tuple[QuestionText, ...] = ()
    judgement: Judgement | None = None  # verdicts of a judge, where the tenant asked for one
    # benchmarks that were asked besides the bundled items
    benchmarks: tuple[BenchmarkScores, ...] = ()
