"""Families of base models: rows of the page, and one family drawn from all."""

import os
import random
from typing import Final

import pytest

from bench.families import PAGE, Tried, listed, try_families
from tests.families import known

pytestmark = pytest.mark.train

SEED: Final = int(os.environ.get("TUNERY_FAMILIES_SEED") or random.SystemRandom().randrange(10**6))
ASIDE: Final = ("bart", "bert", "whisper", "roberta")  # they write text, and do not go on with one


def test_a_row_says_what_holds_and_why_not() -> None:
    tried = Tried("mamba2", lora=True, full=True, why=("rows | are\nnot `packed`: " + "x" * 200,))
    assert tried.row.startswith("| `mamba2` | yes | yes | no | rows / are not 'packed': xxx")
    assert tried.row.endswith("x… |")
    assert len(tried.row) < 170


def test_bases_f1_a_family_is_as_the_page_says_or_says_why_not(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """One of all that write text, drawn at random: most are on no page."""
    with capfd.disabled():
        print(f"TUNERY_FAMILIES_SEED={SEED}")
    family = random.Random(SEED).choice(sorted({*known()} - {*ASIDE}))
    (tried,) = try_families((family,))
    if family in listed():
        columns = " | ".join(tried.row.split(" | ")[:4])
        assert columns in PAGE.read_text(encoding="utf-8"), tried
    assert (tried.lora and tried.full and tried.packs) or tried.why, tried
