"""What good rows should not hold: near duplicates, benchmark items, personal data, secrets, abuse.

`Policy` says what becomes of each. Rows come in the order of the file; a verdict about one row does
not depend on how many are looked at together.
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
from tunery.data.dialects.detection import Conversation
from tunery.data.findings.finding import Finding, Note
from tunery.data.likeness.clusters import Clusters
from tunery.data.likeness.duplicates import DuplicateFinder
from tunery.data.personal import KINDS, Kind, Span, find, mask
from tunery.data.screening.contamination import LOOSE_WORDS, STRICT_WORDS, Index, Item, Overlap
from tunery.data.screening.operator_models import rate, recognise
from tunery.data.tokens.message_marks import texts

Personal: TypeAlias = Literal["ignore", "warn", "scrub", "block"]
Overlaps: TypeAlias = Literal["flag", "remove", "escalate"]
Repeats: TypeAlias = Literal["keep", "remove"]
Toxic: TypeAlias = Literal["warn", "block"]

BATCH_ROWS: Final = 512  # compared with benchmarks, and rated, together
TRIAL: Final = "Ann lives in Oslo."  # what a model is tried with


class Policy(Struct, frozen=True):
    """What becomes of a row: told, left out (`remove`), masked (`scrub`), or the file refused.

    `personal_model` and `toxicity_model`: places of models (`models`); without one names are not
    looked for, or toxicity is not. A row is toxic from `toxic_percent` on.
    """

    repeats: Repeats = "keep"
    benchmarks: Overlaps = "flag"
    personal: Personal = "ignore"
    secrets: Personal = "block"
    toxic: Toxic = "warn"
    toxic_percent: int = 50
    personal_model: str | None = None
    toxicity_model: str | None = None

    def rule(self, kind: Kind) -> Personal:
        return self.secrets if kind == "secret" else self.personal

    def names(self, text: str) -> Iterable[Span]:
        """What the model for personal data finds. Raises ModelUnusable."""
        if self.personal == "ignore" or self.personal_model is None:
            return ()
        return recognise(self.personal_model, text)

    def without_warnings(self) -> "Policy":
        """The policy without models that only warn: no byte depends on those."""
        looks = self.personal in ("scrub", "block")
        return replace(
            self,
            personal_model=self.personal_model if looks else None,
            toxicity_model=self.toxicity_model if self.toxic == "block" else None,
        )

    def try_models(self) -> None:
        """Use every model once. Raises ModelUnusable."""
        if self.personal_model is not None:
            recognise(self.personal_model, TRIAL)
        if self.toxicity_model is not None:
            rate(self.toxicity_model, [TRIAL])


class Screening:
    """Looks at the good rows of one file. Give it to one file only, and close it.

    Raises ModelUnusable, before the first row when a model cannot be had at all.
    """

    def __init__(
        self, policy: Policy, items: Sequence[Item] = (), folder: Path | None = None
    ) -> None:
        policy.try_models()
        self.policy = policy
        self.left_out: set[int] = set()  # good rows, counted from 0, that hold benchmark items
        self._kinds = frozenset(kind for kind in KINDS if policy.rule(kind) != "ignore")
        self._finder = DuplicateFinder(folder)
        self._indexes = [Index(items, n) for n in (LOOSE_WORDS, STRICT_WORDS)] if items else []
        self._waiting: list[tuple[Row, str]] = []
        self._numbers, self._lines = array("q"), array("q")  # of each good row
        self._clusters: Clusters | None = None
        self._items: defaultdict[str, set[int]] = defaultdict(set)
        self._rows: Counter[str] = Counter()

    def __enter__(self) -> "Screening":
        return self

    def __exit__(self, *_: object) -> None:
        self._finder.__exit__()

    def add(self, row: Row, conversation: Conversation) -> list[Finding]:
        """Findings about this row and about rows that waited with it."""
        self._finder.add(conversation)
        self._numbers.append(row.number)
        self._lines.append(row.line or 0)
        findings = [note.at(row.number, row.line) for note in self._private(conversation)]
        if self._indexes or self.policy.toxicity_model is not None:
            said = (m["content"] for m in conversation.messages if m["role"] != "system")
            self._waiting.append((row, "\n".join(said)))
            if len(self._waiting) >= BATCH_ROWS:
                findings += self.flush()
        return findings

    def flush(self) -> list[Finding]:
        """Compare what waits with the benchmarks, and rate it."""
        waiting, self._waiting = self._waiting, []
        return [*self._overlapping(waiting), *self._toxic(waiting)]

    def _toxic(self, waiting: Sequence[tuple[Row, str]]) -> Iterator[Finding]:
        if self.policy.toxicity_model is None or not waiting:
            return
        code = "toxic_refused" if self.policy.toxic == "block" else "toxic_row"
        rates = rate(self.policy.toxicity_model, [text for _, text in waiting])
        for (row, _), percent in zip(waiting, rates, strict=True):
            if percent >= self.policy.toxic_percent:
                yield Note(code, detail=f"rated {percent} %").at(row.number, row.line)

    def _overlapping(self, waiting: Sequence[tuple[Row, str]]) -> list[Finding]:
        if not self._indexes or not waiting:
            return []
        first = len(self._numbers) - len(waiting)
        rows = [text for _, text in waiting]
        loose, strict = self._indexes
        by_text: defaultdict[int, list[Overlap]] = defaultdict(list)
        for overlap in loose.overlaps(rows):
            by_text[overlap.text].append(overlap)
        percent = {(it.text, it.item): it.percent for it in strict.overlaps(rows)}
        findings: list[Finding] = []
        for number, overlaps in sorted(by_text.items()):
            row = waiting[number][0]
            self.left_out.add(first + number)
            findings += [note.at(row.number, row.line) for note in self._told(overlaps, percent)]
        return findings

    def not_looked_for(self) -> tuple[str, ...]:
        """What this check says nothing about, so that silence is not taken for a clean bill."""
        known = (
            ("benchmark items", bool(self._indexes)),
            ("personal data", self.policy.personal != "ignore"),
            (
                "names of people",
                self.policy.personal != "ignore" and self.policy.personal_model is not None,
            ),
            ("secrets", self.policy.secrets != "ignore"),
            ("toxicity", self.policy.toxicity_model is not None),
        )
        return tuple(what for what, looked in known if not looked)

    @property
    def scrubs(self) -> bool:
        """Values are replaced when the rows are prepared."""
        return any(self.policy.rule(kind) == "scrub" for kind in KINDS)

    def clusters(self) -> Clusters:
        """Of all rows; none may be added after this."""
        if self._clusters is None:
            self._clusters = self._finder.clusters()
        return self._clusters

    def used(self) -> NDArray[np.bool_]:
        """Which good rows the policy leaves in."""
        first = self.clusters().first
        used = np.ones(len(first), np.bool_)
        if self.policy.benchmarks == "remove":
            used[sorted(self.left_out)] = False
        if self.policy.repeats == "remove":
            used &= first == np.arange(len(used))
        return used

    def finish(self) -> list[Finding]:
        """Findings that need the whole file: near duplicates, and each benchmark's share."""
        findings = self.flush()
        clusters = self.clusters()
        for row in clusters.near_repeats():
            like = Note("near_duplicate", detail=f"row {self._numbers[int(clusters.first[row])]}")
            findings.append(like.at(self._numbers[row], self._lines[row] or None))
        if self._indexes:
            known = Counter(item.benchmark for item in self._indexes[0].items)
            for name, found in sorted(self._items.items()):
                share = f"{len(found):,} of {known[name]:,} items in {self._rows[name]:,} rows"
                note = Note("benchmark_overlap", detail=f"{name}, {share}")
                findings.append(note.at(None, None))
        return findings

    def _private(self, conversation: Conversation) -> Iterator[Note]:
        """Kinds of values by message; where they stand, never what they are."""
        if not self._kinds:
            return
        for at, message in enumerate(conversation.messages):
            said = texts([value for key, value in message.items() if key != "role"])
            found = {span.kind for text in said for span in self._found(text)}
            for kind in sorted(found):
                yield Note(self._private_code(kind), f"/messages/{at}", kind)

    def _found(self, text: str) -> list[Span]:
        return find(text, self._kinds, self.policy.names)

    def _private_code(self, kind: Kind) -> str:
        if self.policy.rule(kind) != "block":
            return "personal_data"
        return "secret_in_text" if kind == "secret" else "personal_data_refused"

    def _told(
        self, overlaps: Sequence[Overlap], strict: dict[tuple[int, int], int]
    ) -> Iterator[Note]:
        """One note for each benchmark: the item that is there most, and how many others."""
        by_name: defaultdict[str, list[Overlap]] = defaultdict(list)
        items = self._indexes[0].items
        for overlap in overlaps:
            by_name[items[overlap.item].benchmark].append(overlap)
        refused = self.policy.benchmarks == "escalate"
        code = "benchmark_refused" if refused else "benchmark_item"
        for name, found in sorted(by_name.items()):
            self._rows[name] += 1
            self._items[name].update(overlap.item for overlap in found)
            best = max(found, key=lambda it: (it.percent, -it.item))
            runs = f"{best.percent} % of it in runs of {LOOSE_WORDS} words"
            if (share := strict.get((best.text, best.item))) is not None:
                runs += f", {share} % in runs of {STRICT_WORDS}"
            more = f"; and {len(found) - 1} more items" if len(found) > 1 else ""
            yield Note(code, detail=f"{name}, {items[best.item].place}: {runs}{more}")


def scrubbed(conversation: Conversation, policy: Policy) -> Conversation:
    """The row with each value that the policy wants scrubbed replaced by its kind."""
    kinds = frozenset(kind for kind in KINDS if policy.rule(kind) == "scrub")
    if not kinds:
        return conversation
    hide = partial(mask, kinds=kinds, more=policy.names)
    return replace(
        conversation,
        messages=_masked(conversation.messages, hide),
        pair=conversation.pair and _masked(conversation.pair, hide),
    )


def _masked(value: Any, hide: Callable[[str], str]) -> Any:
    match value:
        case str():
            return hide(value)
        case dict():
            return {key: _masked(item, hide) for key, item in value.items()}
        case list() | tuple():
            return type(value)(_masked(item, hide) for item in value)
        case _:
            return value
