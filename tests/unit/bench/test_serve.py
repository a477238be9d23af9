"""Benchmark of inference: its figures for both sides, and a run on a tiny model."""

import json
import subprocess
import sys

import pytest

from bench.serve import (
    ADAPTERS,
    ASKED,
    STREAMS,
    PlainRounds,
    Round,
    StreamAnswer,
    adapter_of,
    figures_of,
)
from tests.bases import tiny_base

RUN_S_MAX = 560


def measured(text: str, tokens: int, wall_s: float, count: int = STREAMS) -> Round:
    return Round([StreamAnswer(text, tokens, 10.0)] * count, wall_s)


def test_each_adapter_has_as_many_streams() -> None:
    assert len(ASKED) == STREAMS
    of_each = [adapter_of(stream) for stream in range(STREAMS)]
    assert {of_each.count(number) for number in range(ADAPTERS)} == {STREAMS // ADAPTERS}


def test_ratios_compare_the_same_number_of_streams() -> None:
    plain = PlainRounds(
        single=measured("a", 10, 1.0, count=1),
        in_turn=measured("a", 10, 8.0),
        batched=measured("b", 10, 4.0),
    )
    figures = figures_of(measured("a", 10, 0.5, count=1), measured("a", 10, 2.0), plain)
    assert figures["ratio_one"] == 2.0
    assert figures["ratio_eight_in_turn"] == 4.0
    assert figures["ratio_eight_batched"] == 2.0
    assert (figures["eight_tokens_s"], figures["eight_first_ms"]) == (40.0, 10)
    assert (figures["equal_texts"], figures["texts"]) == (STREAMS, STREAMS)


@pytest.mark.soak  # a minute; tests of the engines compare their answers with those of generate
@pytest.mark.train
def test_in_fp32_the_answers_are_those_of_generate() -> None:
    command = [sys.executable, "-m", "bench.serve", "--json", "--tokens", "12"]
    command += ["--base", str(tiny_base().dir)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_S_MAX)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["texts"] == STREAMS
    # which answers share a batch is a matter of time, and a batch rounds its sums in its own order
    assert figures["equal_texts"] >= STREAMS - 1
    assert all(value > 0 for name, value in figures.items() if "added" not in name)
