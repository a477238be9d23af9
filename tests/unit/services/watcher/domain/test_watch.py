"""Anomalies that telemetry shows, in windows of the broker's time."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.anomaly import Anomaly
from schemas.telemetry import Progress, Telemetry
from services.watcher.domain.watch import (
    STEPS_MAX,
    STEPS_MIN,
    WINDOWS_MAX,
    Watch,
    judge_silence,
    mark_lasting,
    observe,
)
from tests.unit.services.watcher.telemetry import CALM, JOB, TENANT, WINDOW_MS, step
from tunery.work.divergence import WINDOW_STEPS

BEGAN: Final = 1_795_000_020_000
EVERY_MS: Final = 6_000  # so that a window has ten steps
STUCK_MS: Final = 300_000


def observed(
    messages: Iterable[Telemetry], *, began: int = BEGAN, every: int = EVERY_MS
) -> tuple[Watch, list[Anomaly]]:
    """The watch after messages at regular intervals, and what they have shown."""
    watch: Watch | None = None
    shown = list[Anomaly]()
    for number, message in enumerate(messages):
        watch, anomalies = observe(watch, message, began + number * every, WINDOW_MS)
        shown += anomalies
    assert watch is not None
    return watch, shown


def steps(count: int, first: int = 1, **fields: Any) -> list[Telemetry]:
    return [step(first + number, **fields) for number in range(count)]


def losses(values: Iterable[float | None]) -> list[Telemetry]:
    return [step(number, loss=loss) for number, loss in enumerate(values, 1)]


def test_three_high_losses_are_a_spike_once_and_one_is_none() -> None:
    _, shown = observed(losses((*CALM, 9.0, 1.0, 9.0, 9.0, 9.0, 9.0, 9.0)), every=1_000)
    assert [anomaly.kind for anomaly in shown] == ["loss_spike"]
    assert (shown[0].measured_ppm, shown[0].usual_ppm) == (9_000_000, 1_020_000)


def test_a_loss_that_is_no_number_is_left_out() -> None:
    no_numbers = (None, float("nan"), float("inf"))
    assert observed(losses((*CALM, *no_numbers, *no_numbers)))[1] == []


def test_a_window_of_less_than_half_the_usual_speed_is_a_drop_until_one_is_usual_again() -> None:
    slow = steps(20, 41, tokens_per_s=40.0)
    _, shown = observed([*steps(40), *slow, *steps(20, 61), *steps(20, 81, tokens_per_s=30.0)])
    assert [anomaly.kind for anomaly in shown] == ["throughput_drop"] * 2
    first, second = shown
    assert (first.measured_ppm, first.usual_ppm) == (40_000_000, 100_000_000)
    # the fifth window from the one with the first step
    assert first.window == BEGAN - BEGAN % WINDOW_MS + 4 * WINDOW_MS
    assert second.measured_ppm == 30_000_000
    assert len({anomaly.key for anomaly in shown}) == 2


def test_half_the_usual_speed_is_no_drop() -> None:
    assert observed([*steps(40), *steps(40, 41, tokens_per_s=50.0)])[1] == []


def test_two_windows_are_too_few_to_be_compared_with() -> None:
    assert observed([*steps(20), *steps(20, 21, tokens_per_s=20.0)])[1] == []


def test_slow_steps_make_longer_windows_and_one_of_them_is_no_drop() -> None:
    mixed = [step(number, tokens_per_s=1.0 if number == 24 else 100.0) for number in range(1, 40)]
    assert observed(mixed, every=WINDOW_MS)[1] == []
    _, shown = observed([*steps(25), *steps(11, 26, tokens_per_s=1.0)], every=WINDOW_MS)
    assert [anomaly.kind for anomaly in shown] == ["throughput_drop"]


def test_devices_that_hardly_compute_are_idle_and_processors_are_not() -> None:
    _, shown = observed(steps(40, busy_percent=3))
    assert [(anomaly.kind, anomaly.measured_ppm) for anomaly in shown] == [("gpu_idle", 30_000)]
    assert observed(steps(40, busy_percent=10))[1] == []
    assert observed(steps(40))[1] == []


def test_silence_is_stuck_beyond_the_limit_and_the_longest_pause() -> None:
    watch, _ = observed(steps(10))
    assert judge_silence(watch, STUCK_MS - 1, STUCK_MS, WINDOW_MS) is None
    anomaly = judge_silence(watch, STUCK_MS, STUCK_MS, WINDOW_MS)
    assert anomaly is not None
    assert (anomaly.kind, anomaly.measured_ppm, anomaly.usual_ppm) == ("stuck", 3e8, 6e6)
    assert judge_silence(mark_lasting(watch, "stuck"), STUCK_MS, STUCK_MS, WINDOW_MS) is None

    evaluates, _ = observed(steps(3), every=4 * 60_000)
    assert judge_silence(evaluates, 2 * STUCK_MS, STUCK_MS, WINDOW_MS) is None
    assert judge_silence(evaluates, 3 * 4 * 60_000, STUCK_MS, WINDOW_MS) is not None


def test_an_attempt_that_goes_on_may_be_stuck_again() -> None:
    watch, _ = observed(steps(10))
    went_on, _ = observe(mark_lasting(watch, "stuck"), step(11), BEGAN + 3_600_000, WINDOW_MS)
    assert "stuck" not in went_on.lasting


def test_an_attempt_that_took_its_last_step_may_be_silent() -> None:
    watch, _ = observed(steps(10, total_steps=10))
    assert judge_silence(watch, 10 * STUCK_MS, STUCK_MS, WINDOW_MS) is None


def test_a_new_attempt_is_watched_anew_and_an_old_one_is_over() -> None:
    watch, _ = observed(steps(30))
    progress = Progress(tenant=TENANT, job_id=JOB, attempt=2, stage="items_base", done_ppm=1)
    second, _ = observe(watch, progress, BEGAN + 600_000, WINDOW_MS)
    assert (second.attempt, second.step, second.speeds, second.pause_ms) == (2, -1, (), 0)
    assert observe(second, step(31), BEGAN + 700_000, WINDOW_MS) == (second, ())


STREAMS: Final = st.lists(
    st.tuples(
        st.sampled_from([1.0, 1.1, 9.0, None]),
        st.sampled_from([100.0, 90.0, 10.0, None]),
        st.sampled_from([0, 90, None]),
    ),
    min_size=1,
    max_size=120,
)


@given(STREAMS, st.data())
def test_what_is_read_again_after_a_kill_shows_the_same_windows_and_no_others(
    stream: list[tuple[float | None, float | None, int | None]], data: st.DataObject
) -> None:
    """The table is ahead of the position by some messages, as after a kill of Faust."""
    messages = [
        (step(n, loss=loss, tokens_per_s=speed, busy_percent=busy), BEGAN + n * EVERY_MS)
        for n, (loss, speed, busy) in enumerate(stream, 1)
    ]
    alone, shown = None, set[str]()
    for message, at in messages:
        alone, anomalies = observe(alone, message, at, WINDOW_MS)
        shown |= {anomaly.key for anomaly in anomalies}

    killed = data.draw(st.integers(0, len(messages)))
    position = data.draw(st.integers(0, killed))
    table = data.draw(st.integers(position, killed))
    again, watch, kept = set[str](), None, list[Watch | None]([None])
    for message, at in messages[:killed]:
        watch, anomalies = observe(watch, message, at, WINDOW_MS)
        kept.append(watch)
        again |= {anomaly.key for anomaly in anomalies}
    watch = kept[table]
    for message, at in messages[position:]:
        watch, anomalies = observe(watch, message, at, WINDOW_MS)
        again |= {anomaly.key for anomaly in anomalies}
    assert again == shown
    assert watch == alone


@given(STREAMS)
def test_what_is_kept_is_bounded_and_can_be_read_again(
    stream: list[tuple[float | None, float | None, int | None]],
) -> None:
    fields = [
        step(n, loss=loss, tokens_per_s=speed, busy_percent=busy)
        for n, (loss, speed, busy) in enumerate(stream, 1)
    ]
    watch, _ = observed(fields, every=500)
    assert len(watch.samples) <= STEPS_MAX
    assert len(watch.speeds) <= WINDOWS_MAX
    assert len(watch.losses.losses) <= WINDOW_STEPS
    encoded = msgspec.msgpack.encode(watch)
    assert len(encoded) < 2_500
    assert msgspec.msgpack.decode(encoded, type=Watch) == watch


@pytest.mark.parametrize("value", [1e300, -1e300])
def test_a_figure_is_an_integer_that_a_journal_can_keep(value: float) -> None:
    watch, _ = observed(steps(40))
    drop = [step(n, tokens_per_s=-abs(value)) for n in range(41, 41 + 2 * STEPS_MIN + 12)]
    shown = list[Anomaly]()
    for number, message in enumerate(drop):
        watch, anomalies = observe(watch, message, BEGAN + (40 + number) * EVERY_MS, WINDOW_MS)
        shown += anomalies
    assert [abs(anomaly.measured_ppm) for anomaly in shown] == [10**18]


def test_losses_of_variants_that_take_turns_are_not_compared_with_each_other() -> None:
    messages = [
        step(number, loss=loss, variant=number % 2)
        for number, loss in enumerate((*CALM, 9.0, 9.0, 9.0, 9.0), 1)
    ]
    assert observed(messages)[1] == []


@pytest.mark.parametrize(("reward", "steps_wanted"), [(0.0, 20), (1.0, 20)])
def test_first_hour2_u17_rewards_that_are_all_equal_warn_once(
    reward: float, steps_wanted: int
) -> None:
    messages = steps(50, loss=0.0, reward=reward, reward_std=0.0, total_steps=100)
    _, shown = observed(messages[: steps_wanted - 1])
    assert shown == []
    _, shown = observed(messages)
    assert [(anomaly.kind, anomaly.usual_ppm) for anomaly in shown] == [("nothing_learnt", 0)]
    assert shown[0].measured_ppm == round(1_000_000 * reward)


def test_first_hour2_u17_a_loss_that_stands_still_warns_with_both_figures() -> None:
    _, shown = observed(steps(80, loss=0.69, total_steps=200))
    (anomaly,) = shown
    figures = (anomaly.kind, anomaly.measured_ppm, anomaly.usual_ppm)
    assert figures == ("nothing_learnt", 690_000, 690_000)


def test_first_hour2_u17_an_attempt_that_goes_on_and_variants_are_not_judged() -> None:
    assert observed(steps(80, first=21, loss=0.69, total_steps=200))[1] == []
    assert observed(steps(80, loss=0.69, total_steps=200, variant=1))[1] == []
