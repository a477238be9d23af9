"""Screens valid rows for near duplicates, benchmark items, personal data, secrets and toxicity.

`ScreeningPolicy` says what happens to each. Rows are added in the order of the file; the result for
a row does not depend on how many rows are processed together.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from tunery.data.containers.row import Row
from tunery.data.dialects.conversation import REASONING, Conversation
from tunery.data.findings.finding import Finding, Note
from tunery.data.likeness.clusters import Clusters
from tunery.data.likeness.duplicates import DuplicateFinder
from tunery.data.personal import KINDS, Kind, Span, find_spans, mask
from tunery.data.screening.contamination import (
    LOOSE_WORDS,
    STRICT_WORDS,
    BenchmarkIndex,
    BenchmarkItem,
    Overlap,
)
from tunery.data.screening.operator_models import rate, recognise
from tunery.data.tokens.message_marks import collect_texts

Personal: TypeAlias = Literal["ignore", "warn", "scrub", "block"]
Overlaps: TypeAlias = Literal["flag", "remove", "escalate"]
Repeats: TypeAlias = Literal["keep", "remove"]
Toxic: TypeAlias = Literal["warn", "block"]

BATCH_ROWS: Final = 512  # compared with benchmarks, and rated, together
TRIAL: Final = "Ann lives in Oslo."  # text with which models are tried


class ScreeningPolicy(Struct, frozen=True):
    """Policy for rows with unwanted content."""

    repeats: Repeats = "keep"  # near duplicates are kept or removed
    # rows with benchmark items are flagged, removed, or the file is refused
    benchmarks: Overlaps = "flag"
    # personal data is ignored, flagged, masked (scrub), or the file is refused
    personal: Personal = "ignore"
    secrets: Personal = "block"  # the same for keys and tokens
    toxic: Toxic = "warn"  # toxic rows are flagged, or the file is refused
    toxic_percent: int = 50  # rating from which a row is toxic
    # model that recognises names (see `operator_models`); None: names are not checked
    personal_model: str | None = None
    toxicity_model: str | None = None  # model that rates toxicity; None: toxicity is not checked

    def rule(self, kind: Kind) -> Personal:
        """Return how personal data of this kind is handled."""
        return self.secrets if kind == "secret" else self.personal

    def recognise_names(self, text: str) -> Iterable[Span]:
        """The spans that the model for personal data finds.

        Raises `ModelUnusable` when the model cannot be loaded or returns invalid spans.
        """
        if self.personal == "ignore" or self.personal_model is None:
            return ()
        return recognise(self.personal_model, text)

    def without_warnings(self) -> "ScreeningPolicy":
        """The policy without models that only produce warnings; the prepared bytes are the same."""
        uses_names = self.personal in ("scrub", "block")
        return replace(
            self,
            personal_model=self.personal_model if uses_names else None,
            toxicity_model=self.toxicity_model if self.toxic == "block" else None,
        )

    def try_models(self) -> None:
        """Call every model once. Raises `ModelUnusable` when one cannot be used."""
        if self.personal_model is not None:
            recognise(self.personal_model, TRIAL)
        if self.toxicity_model is not None:
            rate(self.toxicity_model, [TRIAL])


class Screening:
    """Screens the valid rows of one file. Use one instance per file, as a context manager.

    policy: what happens to each kind of content
    left_out: numbers, from 0, of valid rows that contain benchmark items
    """

    def __init__(
        self,
        policy: ScreeningPolicy,
        items: Sequence[BenchmarkItem] = (),
        folder: Path | None = None,
    ) -> None:
        """Try the models of the policy. Temporary files are kept under `folder`.

        Raises `ModelUnusable` when a model cannot be used.
        """
        policy.try_models()
        self.policy = policy
        self.left_out: set[int] = set()
        self._kinds = frozenset(kind for kind in KINDS if policy.rule(kind) != "ignore")
        self._finder = DuplicateFinder(folder)
        sizes = (LOOSE_WORDS, STRICT_WORDS)
        self._indexes = [BenchmarkIndex(items, n) for n in sizes] if items else []
        self._waiting: list[tuple[Row, str]] = []
        self._numbers, self._lines = array("q"), array("q")  # of each valid row
        self._clusters: Clusters | None = None
        self._items: defaultdict[str, set[int]] = defaultdict(set)
        self._rows: Counter[str] = Counter()

    def __enter__(self) -> "Screening":
        return self

    def __exit__(self, *_: object) -> None:
        self._finder.__exit__()

    def add(self, row: Row, conversation: Conversation) -> list[Finding]:
        """Screen a row. Returns findings about it, and about earlier rows of the same batch.

        Raises `ModelUnusable` when a model returns invalid results.
        """
        self._finder.add(conversation)
        self._numbers.append(row.number)
        self._lines.append(row.line or 0)
        notes = self._personal_data(conversation)
        findings = [note.to_finding(row.number, row.line) for note in notes]
        if self._indexes or self.policy.toxicity_model is not None:
            contents = (
                text
                for m in conversation.messages
                if m["role"] != "system"
                for text in (m.get(REASONING), m["content"])
                if text is not None
            )
            self._waiting.append((row, "\n".join(contents)))
            if len(self._waiting) >= BATCH_ROWS:
                findings += self.flush()
        return findings

    def flush(self) -> list[Finding]:
        """Compare the rows of the current batch with the benchmarks, and rate their toxicity."""
        waiting, self._waiting = self._waiting, []
        return [*self._benchmark_findings(waiting), *self._toxic(waiting)]

    def _toxic(self, waiting: Sequence[tuple[Row, str]]) -> Iterator[Finding]:
        if self.policy.toxicity_model is None or not waiting:
            return
        code = "toxic_refused" if self.policy.toxic == "block" else "toxic_row"
        rates = rate(self.policy.toxicity_model, [text for _, text in waiting])
        for (row, _), percent in zip(waiting, rates, strict=True):
            if percent >= self.policy.toxic_percent:
                yield Note(code, detail=f"rated {percent} %").to_finding(row.number, row.line)

    def _benchmark_findings(self, waiting: Sequence[tuple[Row, str]]) -> list[Finding]:
        if not self._indexes or not waiting:
            return []
        first = len(self._numbers) - len(waiting)
        rows = [text for _, text in waiting]
        loose, strict = self._indexes
        by_text: defaultdict[int, list[Overlap]] = defaultdict(list)
        for overlap in loose.overlaps(rows):
            by_text[overlap.text].append(overlap)
        strict_percent = {
            (overlap.text, overlap.item): overlap.percent for overlap in strict.overlaps(rows)
        }
        findings: list[Finding] = []
        for number, overlaps in sorted(by_text.items()):
            row = waiting[number][0]
            self.left_out.add(first + number)
            notes = self._benchmark_notes(overlaps, strict_percent)
            findings += [note.to_finding(row.number, row.line) for note in notes]
        return findings

    def not_checked(self) -> tuple[str, ...]:
        """The kinds of content that this policy does not check for."""
        kinds = (
            ("benchmark items", bool(self._indexes)),
            ("personal data", self.policy.personal != "ignore"),
            (
                "names of people",
                self.policy.personal != "ignore" and self.policy.personal_model is not None,
            ),
            ("secrets", self.policy.secrets != "ignore"),
            ("toxicity", self.policy.toxicity_model is not None),
        )
        return tuple(kind for kind, is_checked in kinds if not is_checked)

    @property
    def scrubs(self) -> bool:
        """True if values are masked when the rows are prepared."""
        return any(self.policy.rule(kind) == "scrub" for kind in KINDS)

    def clusters(self) -> Clusters:
        """The clusters of near duplicates. No rows may be added after this call."""
        if self._clusters is None:
            self._clusters = self._finder.clusters()
        return self._clusters

    def used(self) -> NDArray[np.bool_]:
        """Return a mask of the valid rows, True for each that the policy keeps."""
        first = self.clusters().first
        used = np.ones(len(first), np.bool_)
        if self.policy.benchmarks == "remove":
            used[sorted(self.left_out)] = False
        if self.policy.repeats == "remove":
            used &= first == np.arange(len(used))
        return used

    def finish(self) -> list[Finding]:
        """Findings about the whole file: near duplicates, and the share of each benchmark."""
        findings = self.flush()
        clusters = self.clusters()
        for row in clusters.near_repeats():
            note = Note("near_duplicate", detail=f"row {self._numbers[int(clusters.first[row])]}")
            findings.append(note.to_finding(self._numbers[row], self._lines[row] or None))
        if self._indexes:
            totals = Counter(item.benchmark for item in self._indexes[0].items)
            for name, items in sorted(self._items.items()):
                share = f"{len(items):,} of {totals[name]:,} items in {self._rows[name]:,} rows"
                note = Note("benchmark_overlap", detail=f"{name}, {share}")
                findings.append(note.to_finding(None, None))
        return findings

    def _personal_data(self, conversation: Conversation) -> Iterator[Note]:
        """Note the kinds of personal data in each message, never the values."""
        if not self._kinds:
            return
        messages = [(f"/messages/{i}", text) for i, text in enumerate(conversation.messages)]
        if conversation.rejected is not None:  # its prompt is that of the messages
            messages.append(("/rejected", conversation.rejected[-1]))
        for pointer, message in messages:
            texts = collect_texts([value for key, value in message.items() if key != "role"])
            kinds = {span.kind for text in texts for span in self._find_spans(text)}
            for kind in sorted(kinds):
                yield Note(self._personal_code(kind), pointer, kind)

    def _find_spans(self, text: str) -> list[Span]:
        return find_spans(text, self._kinds, self.policy.recognise_names)

    def _personal_code(self, kind: Kind) -> str:
        if self.policy.rule(kind) != "block":
            return "personal_data"
        return "secret_in_text" if kind == "secret" else "personal_data_refused"

    def _benchmark_notes(
        self, overlaps: Sequence[Overlap], strict_percent: dict[tuple[int, int], int]
    ) -> Iterator[Note]:
        """One note per benchmark: the item with the largest overlap, and how many others."""
        by_name: defaultdict[str, list[Overlap]] = defaultdict(list)
        items = self._indexes[0].items
        for overlap in overlaps:
            by_name[items[overlap.item].benchmark].append(overlap)
        refused = self.policy.benchmarks == "escalate"
        code = "benchmark_refused" if refused else "benchmark_item"
        for name, in_row in sorted(by_name.items()):
            self._rows[name] += 1
            self._items[name].update(overlap.item for overlap in in_row)
            best = max(in_row, key=lambda overlap: (overlap.percent, -overlap.item))
            runs = f"{best.percent} % of it in runs of {LOOSE_WORDS} words"
            if (share := strict_percent.get((best.text, best.item))) is not None:
                runs += f", {share} % in runs of {STRICT_WORDS}"
            more = f"; and {len(in_row) - 1} more items" if len(in_row) > 1 else ""
            yield Note(code, detail=f"{name}, {items[best.item].source}: {runs}{more}")


def scrub(conversation: Conversation, policy: ScreeningPolicy) -> Conversation:
    """Replace each value that the policy wants masked by its kind."""
    kinds = frozenset(kind for kind in KINDS if policy.rule(kind) == "scrub")
    if not kinds:
        return conversation
    mask_text = partial(mask, kinds=kinds, recognise=policy.recognise_names)
    return replace(
        conversation,
        messages=_mask_texts(conversation.messages, mask_text),
        pair=conversation.pair and _mask_texts(conversation.pair, mask_text),
        rejected=conversation.rejected and _mask_texts(conversation.rejected, mask_text),
        item=conversation.item and _mask_texts(conversation.item, mask_text),
    )


def _mask_texts(value: Any, mask_text: Callable[[str], str]) -> Any:
    match value:
        case str():
            return mask_text(value)
        case dict():
            return {key: _mask_texts(item, mask_text) for key, item in value.items()}
        case list() | tuple():
            return type(value)(_mask_texts(item, mask_text) for item in value)
        case _:
            return value
