import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunery.ml.recipe import batch_rows, epochs, learning_rate, resolve, row_length
from tunery.ml.spec import Hyper


@pytest.mark.parametrize(
    ("examples", "expected"), [(1, 25), (10, 10), (34, 3), (240, 3), (25_000, 1), (10**6, 1)]
)
def test_epochs_follow_the_size_of_the_file(examples: int, expected: int) -> None:
    assert epochs(examples) == expected


@given(st.integers(min_value=1, max_value=10**7))
def test_small_files_are_seen_more_often_and_never_without_end(examples: int) -> None:
    assert 1 <= epochs(examples) <= 25
    assert epochs(examples + 1) <= epochs(examples)


def test_rates_of_known_models() -> None:
    assert learning_rate("llama", 4096, 1000) == pytest.approx(2.9e-4)
    assert learning_rate("LlamaForCausalLM", 576, 1000) == pytest.approx(1.3e-3)
    assert learning_rate("llama", 576, 40) == pytest.approx(2.0e-3)
    assert learning_rate("qwen2", 4096, 1000) == pytest.approx(4.7e-4)


def test_batches_leave_a_hundred_steps() -> None:
    assert [batch_rows(rows) for rows in (1, 99, 250, 10**6)] == [1, 1, 2, 16]


@given(st.integers(min_value=1, max_value=10**6))
def test_a_row_holds_the_longest_document(longest: int) -> None:
    assert row_length(longest) >= max(longest, 512)


def test_only_what_is_null_is_chosen() -> None:
    chosen = resolve(
        Hyper(rank=8, learning_rate=1e-4), examples=240, rows=28, longest=512, family="llama",
        hidden=576,
    )  # fmt: skip
    assert (chosen.rank, chosen.alpha, chosen.learning_rate) == (8, 16, 1e-4)
    assert (chosen.n_epochs, chosen.batch_size, chosen.max_length) == (3, 1, 512)


def test_zero_warmup_is_a_choice_not_a_gap() -> None:
    chosen = resolve(Hyper(warmup=0.0), examples=9, rows=2, longest=40, family="llama", hidden=64)
    assert chosen.warmup == 0.0


def test_choosing_never_loads_torch() -> None:
    code = "import sys, tunery.ml.recipe; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
