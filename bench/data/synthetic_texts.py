"""Synthetic texts for measurements, the same for the same seed on every machine."""

from collections.abc import Callable
from random import Random
from typing import Final

WORDS: Final = 5_000
LETTERS: Final = "etaoinshrdlucmfwypvbgk"
CHANGED_WORDS_MAX: Final = 3


class TextGenerator:
    """Generates texts of invented words.

    random: the source of randomness
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311  # no secrets here
        spell = self.random.choices
        self._words = ["".join(spell(LETTERS, k=self.random.randint(2, 9))) for _ in range(WORDS)]

    def text(self, chars: int) -> str:
        """A text of this many characters."""
        words: list[str] = []
        size = -1
        while size < chars:
            words.append(self.random.choice(self._words))
            size += len(words[-1]) + 1
        return " ".join(words)[:chars]

    def variant(self, text: str) -> str:
        """The text with one to three words changed."""
        words = text.split(" ")
        for _ in range(self.random.randint(1, CHANGED_WORDS_MAX)):
            words[self.random.randrange(len(words))] = self.random.choice(self._words)
        return " ".join(words)

    def short(self, rows: int) -> list[str]:
        """Rows of 200 characters, 3 % of them variants of an earlier one."""
        return self._rows(rows, 3, lambda: self.text(200))

    def templated(self, rows: int) -> list[str]:
        """Rows of 1 kB, most of it one of 60 templates; 40 % are variants of an earlier row."""
        templates = [self.text(self.random.randint(300, 800)) for _ in range(60)]

        def fresh() -> str:
            template = self.random.choice(templates)
            return f"{template} {self.text(1_024 - len(template))}"

        return self._rows(rows, 40, fresh)

    def one_template(self, rows: int) -> list[str]:
        """Rows of 760 characters, 700 of them the same in all; 40 % variants of an earlier row."""
        template = self.text(700)
        return self._rows(rows, 40, lambda: f"{template} {self.text(60)}")

    def _rows(self, rows: int, variant_percent: int, fresh: Callable[[], str]) -> list[str]:
        rows_so_far: list[str] = []
        for _ in range(rows):
            repeats = rows_so_far and self.random.random() * 100 < variant_percent
            row = self.variant(self.random.choice(rows_so_far)) if repeats else fresh()
            rows_so_far.append(row)
        return rows_so_far
