"""Hyper-parameters: what is out of range is named, and "auto" follows the data."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.envelope import Reason
from services.gateway.wording import parameter_words
from tests.unit.tunery.plan.samples import SMOL, tokens
from tunery.plan.hyperparameters import RANGES, multiplier_max, problems, resolve
from tunery.plan.knobs import KNOBS
from tunery.plan.memory import memory_bytes


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
    whole, _ = resolve({"adaptation": "full", "n_epochs": 1}, SMOL, tokens(10_000), 1)
    assert whole.learning_rate_ppb == pytest.approx(132_000, rel=0.02)
    exact, _ = resolve({"learning_rate": 2e-4}, SMOL, None, 1)
    assert exact.learning_rate_ppb == 200_000


def test_checkpoints_have_a_share_of_the_time_unless_their_steps_were_asked_for() -> None:
    assert resolve(None, SMOL, None, 1)[0].checkpoint_share_ppm == 20_000
    asked, _ = resolve({"checkpoint_every_steps": 5}, SMOL, None, 1)
    assert (asked.checkpoint_every_steps, asked.checkpoint_share_ppm) == (5, 0)
    both, _ = resolve({"checkpoint_every_steps": 5, "checkpoint_share": 0.1}, SMOL, None, 1)
    assert (both.checkpoint_every_steps, both.checkpoint_share_ppm) == (5, 100_000)
    assert resolve({"checkpoint_share": 0}, SMOL, None, 1)[0].checkpoint_share_ppm == 0


def test_the_length_grows_with_the_longest_row_up_to_a_bound() -> None:
    assert resolve(None, SMOL, tokens(9_000, 500), 1)[0].max_length == 512
    assert resolve(None, SMOL, tokens(9_000, 700), 1)[0].max_length == 1024
    assert resolve(None, SMOL, tokens(90_000, 9_000), 1)[0].max_length == 2048
    short = msgspec.structs.replace(SMOL, context_length=256)
    assert resolve(None, short, tokens(9_000, 200), 1)[0].max_length == 256
    assert resolve(None, SMOL, tokens(9_000), 1, "cuda")[0].max_length == 2048


def test_problems_are_named_all_at_once() -> None:
    named = problems(
        {"n_epochs": 0, "rank": 1.5, "max_length": 10_000, "alpha": True, "speed": 3, "dropout": 0},
        SMOL,
    )
    assert [problem.param for problem in named] == [
        "n_epochs",
        "rank",
        "max_length",
        "alpha",
        "speed",
    ]
    assert named[0].reason == Reason(
        code="not_whole_in_range",
        params={"name": "n_epochs", "low": "1", "high": "50", "value": "0"},
    )
    assert named[2].reason.params["high"] == "8192"
    assert problems({"n_epochs": "auto", "rank": None, "precision": "fp32"}, SMOL) == ()
    both = problems({"learning_rate": 1e-4, "learning_rate_multiplier": 2}, SMOL)
    assert [problem.param for problem in both] == ["learning_rate_multiplier"]
    assert problems({"precision": "int4"}, SMOL)[0].param == "precision"
    assert problems({"n_epochs": "many"}, SMOL)[0].param == "n_epochs"


@pytest.mark.parametrize("value", [10**400, -(10**400), float("nan"), float("inf"), "x" * 9_999])
def test_numbers_beyond_all_bounds_are_named_in_short(value: int | float | str) -> None:
    for name in RANGES:
        (problem,) = problems({name: value}, SMOL)
        assert problem.param == name
        assert len(str(problem.reason.params)) < 200


@given(name=st.sampled_from(sorted(RANGES)), high=st.booleans())
def test_the_ends_of_every_range_are_allowed_and_resolve(name: str, high: bool) -> None:
    end = RANGES[name][high]
    if name == "max_length":
        end = min(end, SMOL.context_length)
    if name == "learning_rate_multiplier":
        end = min(end, multiplier_max(SMOL))
    asked: dict[str, Any] = {name: end}
    if name == "accumulation":
        asked["batch_size"] = 256
    if KNOBS[name].methods:
        asked["method"] = KNOBS[name].methods[0]
    slots = int(end) if name in ("tensor_parallel", "context_parallel") else 1
    assert problems(asked, SMOL, slots) == ()
    hyper, _ = resolve(asked, SMOL, tokens(10_000), 1)
    assert hyper.learning_rate_ppb >= 1
    assert memory_bytes(SMOL, hyper, "cpu", ranks=slots) > 0


@pytest.mark.parametrize("hidden", [64, 576, 4_096])
@pytest.mark.parametrize("count", [1_000, 10_000_000])
def test_no_multiplier_leads_out_of_the_range_of_learning_rates(hidden: int, count: int) -> None:
    base = msgspec.structs.replace(SMOL, hidden_size=hidden)
    most = multiplier_max(base)
    hyper, _ = resolve({"learning_rate_multiplier": most}, base, tokens(count), 1)
    assert hyper.learning_rate_ppb <= RANGES["learning_rate"][1] * 1e9
    (problem,) = problems({"learning_rate_multiplier": most + 0.01}, base)
    assert problem.reason.params["high"] == str(most)


@pytest.mark.parametrize("multiplier", [1e-6, 0.005, 20, 40])
def test_first_hour_low_multipliers_that_openai_accepts_are_accepted(multiplier: float) -> None:
    """Its range is "> 0"; it was 0.01 to 50.43 here, without a word on why."""
    asked = {"learning_rate_multiplier": multiplier}
    assert problems(asked, SMOL) == ()
    assert resolve(asked, SMOL, tokens(10_000), 1)[0].learning_rate_ppb >= 1
    for wrong in (0, -1, 10**6):
        (problem,) = problems({"learning_rate_multiplier": wrong}, SMOL)
        assert "where the learning rate is 0.1" in parameter_words(problem.reason)


@pytest.mark.parametrize(
    ("family", "hidden", "rate_ppb"),
    [
        ("mistral", 4096, 286_000),
        ("gemma", 3584, 317_000),
        ("phi", 12_288, 200_000),
        ("qwen", 4096, 473_000),
    ],
)
def test_training_m15_the_learning_rate_of_any_family_falls_with_its_width(
    family: str, hidden: int, rate_ppb: int
) -> None:
    base = msgspec.structs.replace(SMOL, family=family, hidden_size=hidden)
    assert resolve(None, base, None, 1)[0].learning_rate_ppb == pytest.approx(rate_ppb, rel=0.02)


def test_first_hour2_u5_each_epoch_of_an_adapter_ends_with_a_checkpoint() -> None:
    """As at OpenAI, where the checkpoints of epochs are what one compares."""
    assert resolve(None, SMOL, None, 1)[0].checkpoint_each_epoch
    assert not resolve({"checkpoint_each_epoch": False}, SMOL, None, 1)[0].checkpoint_each_epoch
    assert not resolve({"adaptation": "full"}, SMOL, None, 1)[0].checkpoint_each_epoch
