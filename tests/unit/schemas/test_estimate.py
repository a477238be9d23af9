"""Estimates: figures that were measured come out again, and a hold is an upper bound."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.dataset import BaseTokens, PackPlan
from schemas.estimate import (
    HOLD_MS_MIN,
    RANGES,
    PriceBook,
    estimate,
    hold_of,
    load_prices,
    memory_bytes,
    multiplier_max,
    packed,
    problems,
    resolve,
)
from schemas.job import JobSpec, Price
from schemas.model import Base
from schemas.pool import Device, HyperParameters
from simulator.control_plane.samples import spec

SMOL = Base(
    base_id="smollm2-135m-instruct",
    sha256="a" * 64,
    path="/models/smol",
    parameters=134_515_008,
    context_length=8192,
    family="llama",
    licence="apache-2.0",
    hidden_size=576,
)
PRICE = Price(version="2026-11", currency="EUR", gpu_hour_micro=2_000_000)


def tokens(count: int, longest: int = 100) -> BaseTokens:
    return BaseTokens(
        base_id=SMOL.base_id,
        base_sha256=SMOL.sha256,
        tokens=count,
        trainable_tokens=count // 2,
        longest_row_tokens=longest,
    )


def job(hyper: HyperParameters, **changes: Any) -> JobSpec:
    return spec(**{"base": SMOL, "hyper": hyper, "validation_fraction_ppm": 0, **changes})


def test_the_measured_run_comes_out_again() -> None:
    """20,480 tokens took 62 s of CPU, and evaluation 150 s; start-up is counted on top of both."""
    hyper, _ = resolve({"n_epochs": 1}, SMOL, tokens(20_480), 1)
    found = estimate(job(hyper), tokens(20_480))
    assert 120_000 <= found.train_gpu_ms <= 130_000
    assert 205_000 <= found.eval_gpu_ms <= 215_000
    assert found.hold_gpu_ms == 2 * HOLD_MS_MIN
    assert 1_800_000_000 <= found.memory_bytes <= 2_600_000_000
    assert found.price_micro == -(
        -(found.train_gpu_ms + found.eval_gpu_ms) * 2_000_000 // 3_600_000
    )


@given(
    count=st.integers(1, 10**9),
    slots=st.integers(1, 32),
    device=st.sampled_from(["cpu", "cuda"]),
    epochs=st.integers(1, 50),
)
def test_a_hold_is_three_times_what_is_expected(
    count: int, slots: int, device: Device, epochs: int
) -> None:
    hyper, _ = resolve({"n_epochs": epochs}, SMOL, tokens(count), 1, device)
    found = estimate(job(hyper, slots=slots, device=device), tokens(count))
    assert found.hold_gpu_ms >= 3 * (found.train_gpu_ms + found.eval_gpu_ms)
    assert found.hold_gpu_ms >= slots * HOLD_MS_MIN
    assert found.price_max_micro >= found.price_micro
    assert found.hold_gpu_ms == hold_of(found.train_gpu_ms, slots) + hold_of(
        found.eval_gpu_ms, slots
    )


PLANS = (
    PackPlan(max_length=256, validation_fraction_ppm=0, packed_rows=87, tokens=19_334),
    PackPlan(max_length=256, validation_fraction_ppm=50_000, packed_rows=82, tokens=18_373),
)


@pytest.mark.parametrize(
    ("length", "fraction_ppm", "rows", "count"),
    [
        (256, 50_000, 82, 18_373),  # as the check found it
        (256, 0, 87, 19_334),
        (256, 200_000, 70, 15_468),  # a share of the whole
        (300, 0, 65, 19_334),  # nothing known of this length
    ],
)
def test_steps_follow_the_rows_as_they_will_be_packed(
    length: int, fraction_ppm: int, rows: int, count: int
) -> None:
    known = replace(tokens(19_334), plans=PLANS)
    found = packed(known, length, fraction_ppm)
    assert (found.packed_rows, found.tokens) == (rows, count)
    wish = {"max_length": length, "n_epochs": 2, "batch_size": 4}
    hyper, _ = resolve(wish, SMOL, known, 1, "cpu", fraction_ppm)
    needs = estimate(job(hyper, validation_fraction_ppm=fraction_ppm), known)
    assert (needs.steps, needs.tokens) == (2 * -(-rows // 4), 2 * count)


def test_rows_that_are_split_have_more_tokens() -> None:
    hyper, _ = resolve({"max_length": 101, "n_epochs": 1}, SMOL, tokens(10_000, 500), 1)
    needs = estimate(job(hyper, length_policy="split"), tokens(10_000, 500))
    assert needs.tokens == 10_100
    assert needs.steps == 100


def test_auto_follows_the_data() -> None:
    small, auto = resolve(None, SMOL, tokens(10_000), 7)
    assert auto == ("n_epochs", "batch_size", "learning_rate", "rank", "alpha", "max_length")
    assert (small.n_epochs, small.batch_size, small.seed) == (5, 1, 7)
    large, _ = resolve(None, SMOL, tokens(50_000_000), 7)
    assert (large.n_epochs, large.batch_size) == (1, 16)
    assert small.alpha == 2 * small.rank == 32
    unknown, _ = resolve(None, SMOL, None, 7)
    assert unknown.n_epochs == 3


def test_the_learning_rate_rule() -> None:
    """Llama-3.1-8B: 2.9e-4; SmolLM2-135M: 1.3e-3, and half as much again in short runs."""
    llama = msgspec.structs.replace(SMOL, hidden_size=4096, parameters=8_030_000_000)
    assert resolve(None, llama, None, 1)[0].learning_rate_ppb == pytest.approx(286_000, rel=0.02)
    assert resolve(None, SMOL, None, 1)[0].learning_rate_ppb == pytest.approx(1_320_000, rel=0.02)
    short, _ = resolve({"n_epochs": 1}, SMOL, tokens(10_000), 1)
    assert short.learning_rate_ppb == pytest.approx(1_980_000, rel=0.02)
    double, auto = resolve({"learning_rate_multiplier": 2, "n_epochs": 1}, SMOL, tokens(10_000), 1)
    assert double.learning_rate_ppb == pytest.approx(2 * short.learning_rate_ppb, abs=1)
    assert "learning_rate" not in auto
    exact, _ = resolve({"learning_rate": 2e-4}, SMOL, None, 1)
    assert exact.learning_rate_ppb == 200_000


def test_the_length_grows_with_the_longest_row_up_to_a_bound() -> None:
    assert resolve(None, SMOL, tokens(9_000, 500), 1)[0].max_length == 512
    assert resolve(None, SMOL, tokens(9_000, 700), 1)[0].max_length == 1024
    assert resolve(None, SMOL, tokens(90_000, 9_000), 1)[0].max_length == 2048
    short = msgspec.structs.replace(SMOL, context_length=256)
    assert resolve(None, short, tokens(9_000, 200), 1)[0].max_length == 256
    assert resolve(None, SMOL, tokens(9_000), 1, "cuda")[0].max_length == 2048


def test_problems_are_named_all_at_once() -> None:
    found = problems(
        {"n_epochs": 0, "rank": 1.5, "max_length": 10_000, "alpha": True, "speed": 3, "dropout": 0},
        SMOL,
    )
    assert [problem.param for problem in found] == [
        "n_epochs",
        "rank",
        "max_length",
        "alpha",
        "speed",
    ]
    assert "from 1 to 50" in found[0].message
    assert "8192" in found[2].message
    assert problems({"n_epochs": "auto", "rank": None, "precision": "fp32"}, SMOL) == ()
    both = problems({"learning_rate": 1e-4, "learning_rate_multiplier": 2}, SMOL)
    assert [problem.param for problem in both] == ["learning_rate_multiplier"]
    assert problems({"precision": "int4"}, SMOL)[0].param == "precision"
    assert problems({"n_epochs": "many"}, SMOL)[0].param == "n_epochs"


@pytest.mark.parametrize("value", [10**400, -(10**400), float("nan"), float("inf"), "x" * 9_999])
def test_numbers_beyond_all_bounds_are_problems_told_shortly(value: int | float | str) -> None:
    for name in RANGES:
        (found,) = problems({name: value}, SMOL)
        assert found.param == name
        assert len(found.message) < 200


@given(name=st.sampled_from(sorted(RANGES)), high=st.booleans())
def test_the_ends_of_every_range_are_allowed_and_resolve(name: str, high: bool) -> None:
    end = RANGES[name][high]
    if name == "max_length":
        end = min(end, SMOL.context_length)
    if name == "learning_rate_multiplier":
        end = min(end, multiplier_max(SMOL))
    assert problems({name: end}, SMOL) == ()
    hyper, _ = resolve({name: end}, SMOL, tokens(10_000), 1)
    assert hyper.learning_rate_ppb >= 1
    assert memory_bytes(SMOL, hyper, "cpu") > 0


def test_a_price_book_is_read_and_checked() -> None:
    data = msgspec.json.encode(
        {
            "version": "2026-11",
            "currency": "EUR",
            "gpu_hour_micro": {"premium": 3_000_000},
            "token_micro_per_million": 500_000,
        }
    )
    book = load_prices(data)
    assert isinstance(book, PriceBook)
    assert book.price("premium").gpu_hour_micro == 3_000_000
    with pytest.raises(msgspec.ValidationError, match="gpu_hour_micro"):
        load_prices(b'{"version":"1","currency":"EUR","gpu_hour_micro":7}')
    with pytest.raises(KeyError):
        book.price("free")


@pytest.mark.parametrize("hidden", [64, 576, 4_096])
@pytest.mark.parametrize("count", [1_000, 10_000_000])
def test_no_multiplier_leads_out_of_the_range_of_learning_rates(hidden: int, count: int) -> None:
    base = msgspec.structs.replace(SMOL, hidden_size=hidden)
    most = multiplier_max(base)
    hyper, _ = resolve({"learning_rate_multiplier": most}, base, tokens(count), 1)
    assert hyper.learning_rate_ppb <= RANGES["learning_rate"][1] * 1e9
    (found,) = problems({"learning_rate_multiplier": most + 0.01}, base)
    assert f"from 0.01 to {most}" in found.message
