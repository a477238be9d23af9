"""Packing plans of the check equal what preparation makes and what the trainer counts."""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from schemas.dataset import SPLIT_SEED
from tunery.data.checking import check
from tunery.data.likeness.clusters import Clusters
from tunery.data.preparing import prepare
from tunery.data.reports import packing_plans as module
from tunery.data.reports.packing_plans import FRACTIONS_PPM, LENGTHS, packing_plans
from tunery.data.screening.screening import ScreeningPolicy
from tunery.ml.order import plan_steps
from tunery.plan.packing import steps_of_epoch

WORDS = ("tide", "lamp", "rock", "keeper", "north", "gale", "oil", "stair", "fog", "bell")
Rows = list[tuple[int, int]]
# (number of the question, words of the answer): equal pairs are repeats, short answers classes
ROWS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 150)), min_size=10, max_size=80)


def written(rows: Rows, folder: Path) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(_chat(*row)) + "\n" for row in rows))
    return path


def _chat(question: int, words: int) -> dict[str, Any]:
    answer = " ".join(WORDS[(question + at) % len(WORDS)] for at in range(words))
    user = {"role": "user", "content": f"What about {question}?"}
    return {"messages": [user, {"role": "assistant", "content": answer}]}


@settings(
    max_examples=settings().max_examples // 5,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    rows=ROWS,
    screen=st.sampled_from([ScreeningPolicy(), ScreeningPolicy(repeats="remove")]),
    batch=st.integers(1, 9),
    data=st.data(),
)
def test_packing_plans_equal_what_is_packed(
    base_dir: Path, rows: Rows, screen: ScreeningPolicy, batch: int, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = written(rows, folder)
        counts = check(path, base_dir=base_dir, policy=screen).tokens
        assert counts is not None
        assert {entry.max_length for entry in counts.plans} == {
            length for length in LENGTHS if length >= counts.longest_row_tokens
        }
        known = data.draw(st.sampled_from(counts.plans))
        prepared = prepare(
            path,
            base_dir,
            folder / "out",
            max_length=known.max_length,
            validation_fraction_ppm=known.validation_fraction_ppm,
            seed=SPLIT_SEED,
            screen=screen,
        )
        sizes = _row_tokens(prepared.train_path)
    assert (known.packed_rows, known.tokens) == (len(sizes), sum(sizes))
    run = plan_steps(sizes, n_epochs=2, rows_per_step=batch, seed=1)
    assert run.total_steps == 2 * steps_of_epoch(known.packed_rows, batch)


def _row_tokens(path: Path) -> list[int]:
    parts = load_file(path)
    lengths = iter(parts["seq_lengths"].tolist())
    return [sum(next(lengths) for _ in range(count)) for count in parts["row_lengths"].tolist()]


def test_rows_that_will_change_have_no_packing_plans(base_dir: Path, tmp_path: Path) -> None:
    path = written([(number, 5) for number in range(12)], tmp_path)
    counts = check(path, base_dir=base_dir, policy=ScreeningPolicy(personal="scrub")).tokens
    assert counts is not None
    assert counts.plans == ()


def test_beyond_one_window_the_plan_is_extrapolated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(1)
    lengths = rng.integers(20, 129, 12_000)
    numbers = np.arange(len(lengths), dtype=np.int32)
    clusters = Clusters(numbers, numbers.astype(np.uint64), np.zeros(len(lengths), np.bool_))
    used = np.ones(len(lengths), np.bool_)
    whole = packing_plans(lengths.tolist(), clusters, used, None)
    monkeypatch.setattr(module, "PACK_WINDOW_ROWS", 4_000)
    for exact, scaled in zip(
        whole, packing_plans(lengths.tolist(), clusters, used, None), strict=True
    ):
        assert scaled.tokens == exact.tokens
        assert scaled.packed_rows == pytest.approx(exact.packed_rows, rel=0.03)
    assert len(whole) == len(LENGTHS) * len(FRACTIONS_PPM)
