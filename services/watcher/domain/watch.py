"""State of a watched job: how telemetry changes it, and the anomalies that it shows.

Windows have the broker's time, and a step counts once however often it is read, so what is read
again after a crash shows the same anomalies of the same windows. A loss is judged as its node
judges it, by `tunery.work.divergence`.
"""

from math import isfinite
from statistics import mean, median
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from schemas.anomaly import Anomaly, AnomalyKind
from schemas.telemetry import Step, Telemetry
from schemas.units import PPM, Ms
from tunery.work.divergence import LossWindow
from tunery.work.learning import Learning

#: a window is slow below this share of the usual median speed, as for the alert TrainingIsSlow
SLOW_SHARE: Final = 0.5
#: share of the time below which devices idle: a training that computes keeps them busy for most of
#: it, and an input that is ten times too slow for a tenth. The alert DeviceIdlesInTraining has 5.
IDLE_PERCENT: Final = 10
#: steps that a window needs to be judged: a median of fewer follows one slow step. It lasts longer
#: where steps are slow.
STEPS_MIN: Final = 5
STEPS_MAX: Final = 32  # the newest ones of a window: enough for a median
#: windows that must have passed before a speed is usual: the first ones compile and warm up
WINDOWS_MIN: Final = 3
WINDOWS_MAX: Final = 30
#: silence may be this many times as long as the longest pause before: an evaluation that grows
PAUSES: Final = 3
FIGURE_MAX: Final = 1e12  # of a journal: what is larger is shown as this


class StepSample(Struct, frozen=True, array_like=True):
    """Speed and device utilisation of a step."""

    tokens_per_s: float | None
    busy_percent: int | None


class WindowSpeed(Struct, frozen=True, array_like=True):
    """The median speed of a window, in tokens a second."""

    window: Ms
    tokens_per_s: float


class AttemptOver(Struct, frozen=True):
    """The end of an attempt, as the topic of ends has it."""

    tenant: str
    job_id: str
    attempt: int


class Watch(Struct, frozen=True, array_like=True):
    """The newest attempt of a job."""

    tenant: str
    attempt: int
    last_at: Ms  # broker time of its last message
    window: Ms  # when the open window begins
    pause_ms: Ms = 0  # longest time between two messages
    step: int = -1  # newest step; -1: none yet
    total_steps: int = 0  # 0 where there are none
    samples: tuple[StepSample, ...] = ()  # samples of the open window, the newest last
    losses: LossWindow = LossWindow()  # losses of usual steps
    speeds: tuple[float, ...] = ()  # medians of windows of usual speed, the newest last
    lasting: frozenset[AnomalyKind] = frozenset()  # anomalies that last and were reported
    closed: WindowSpeed | None = None  # the newest window that was judged
    # the job's stream has the end of the attempt; late messages of it change nothing
    ended: bool = False
    # whether anything is learnt, of an attempt that was seen from its first step
    learning: Learning | None = None

    @property
    def may_be_silent(self) -> bool:
        """True if the attempt has ended or has taken its last step."""
        return self.ended or 0 < self.total_steps <= self.step


def observe(
    watch: Watch | None, message: Telemetry, at: Ms, window_ms: Ms
) -> tuple[Watch, tuple[Anomaly, ...]]:
    """The watch after a message, and what it shows for the first time. at: the broker's time."""
    if watch is None or message.attempt > watch.attempt:
        watch = Watch(message.tenant, message.attempt, at, at - at % window_ms)
    elif message.attempt < watch.attempt or watch.ended:
        return watch, ()
    watch = replace(
        watch,
        last_at=max(at, watch.last_at),
        pause_ms=max(at - watch.last_at, watch.pause_ms),
        lasting=watch.lasting - {"stuck"},
    )
    if not isinstance(message, Step) or message.step <= watch.step:
        return watch, ()
    watch, of_window = _close_window(watch, at, window_ms)
    sample = StepSample(_finite(message.tokens_per_s), message.busy_percent)
    watch = replace(
        watch,
        step=message.step,
        total_steps=message.total_steps,
        samples=(*watch.samples, sample)[-STEPS_MAX:],
    )
    watch, of_learning = _judge_learning(watch, message)
    # of variants that take turns each has usual losses of its own, which its process knows
    loss = None if message.variant is not None else _finite(message.loss)
    watch, of_loss = _judge_loss(watch, loss)
    return watch, (*of_window, *of_learning, *of_loss)


def end_attempt(watch: Watch | None, over: AttemptOver, at: Ms, window_ms: Ms) -> Watch:
    """Return the watch after the end of an attempt, of which nothing may have been seen yet."""
    if watch is None or over.attempt > watch.attempt:
        watch = Watch(over.tenant, over.attempt, at, at - at % window_ms)
    elif over.attempt < watch.attempt:
        return watch
    return replace(watch, ended=True)


def judge_silence(watch: Watch, silent_ms: Ms, stuck_ms: Ms, window_ms: Ms) -> Anomaly | None:
    """The anomaly of an attempt that has said nothing for so long; None: it is none, or known."""
    if watch.may_be_silent or "stuck" in watch.lasting:
        return None
    if silent_ms < max(stuck_ms, PAUSES * watch.pause_ms):
        return None
    return Anomaly(
        kind="stuck",
        attempt=watch.attempt,
        window=watch.last_at - watch.last_at % window_ms,
        measured_ppm=_ppm(silent_ms / 1_000),
        usual_ppm=_ppm(watch.pause_ms / 1_000),
    )


def mark_lasting(watch: Watch, kind: AnomalyKind) -> Watch:
    """Mark an anomaly as reported; it is reported again only after it has passed."""
    return replace(watch, lasting=watch.lasting | {kind})


def _judge_loss(watch: Watch, loss: float | None) -> tuple[Watch, tuple[Anomaly, ...]]:
    if loss is None:
        return watch, ()
    watch = replace(watch, losses=watch.losses.add(loss))
    if not watch.losses.spiking:
        return watch, ()
    return watch, (_anomaly(watch, "loss_spike", loss, median(watch.losses.losses)),)


def _judge_learning(watch: Watch, step: Step) -> tuple[Watch, tuple[Anomaly, ...]]:
    """Warn once of an attempt whose steps teach nothing.

    One that continues from a checkpoint may have learnt before, and of variants that take turns a
    figure says nothing of the others: neither is judged.
    """
    if step.step == 1 and step.variant is None:
        watch = replace(watch, learning=Learning())
    if watch.learning is None:
        return watch, ()
    reward = None if step.reward is None else step.reward_std
    learning = watch.learning.add(step.total_steps, _finite(step.loss), reward)
    watch = replace(watch, learning=learning)
    if "nothing_learnt" in watch.lasting or not learning.shows_nothing(step.total_steps):
        return watch, ()
    if learning.equal:
        measured, usual = _finite(step.reward) or 0.0, 0.0
    else:
        measured, usual = median(learning.newest), median(learning.first)
    watch = mark_lasting(watch, "nothing_learnt")
    return watch, (_anomaly(watch, "nothing_learnt", measured, usual),)


def _close_window(watch: Watch, at: Ms, window_ms: Ms) -> tuple[Watch, tuple[Anomaly, ...]]:
    """Judge the open window if it is over, and open the one that `at` is in."""
    opened = at - at % window_ms
    if opened <= watch.window or 0 < len(watch.samples) < STEPS_MIN:
        return watch, ()
    anomalies = list[Anomaly]()
    speeds = [s.tokens_per_s for s in watch.samples if s.tokens_per_s is not None]
    busy = [s.busy_percent for s in watch.samples if s.busy_percent is not None]
    judged = watch
    if len(speeds) >= STEPS_MIN:
        closed = WindowSpeed(watch.window, median(speeds))
        judged = _judge_speed(replace(judged, closed=closed), closed.tokens_per_s, anomalies)
    if len(busy) >= STEPS_MIN:
        judged = _judge(
            judged, "gpu_idle", mean(busy) / 100, 1.0, mean(busy) < IDLE_PERCENT, anomalies
        )
    return replace(judged, window=opened, samples=()), tuple(anomalies)


def _judge_speed(watch: Watch, speed: float, anomalies: list[Anomaly]) -> Watch:
    """A slow window is no measure for later ones."""
    usual = median(watch.speeds) if len(watch.speeds) >= WINDOWS_MIN else 0.0
    is_slow = speed < SLOW_SHARE * usual
    if not is_slow:
        watch = replace(watch, speeds=(*watch.speeds, speed)[-WINDOWS_MAX:])
    return _judge(watch, "throughput_drop", speed, usual, is_slow, anomalies)


def _judge(
    watch: Watch,
    kind: AnomalyKind,
    measured: float,
    usual: float,
    is_unusual: bool,
    anomalies: list[Anomaly],
) -> Watch:
    """Add what is unusual and was usual in the window before."""
    if not is_unusual:
        return replace(watch, lasting=watch.lasting - {kind})
    if kind not in watch.lasting:
        anomalies.append(_anomaly(watch, kind, measured, usual))
    return mark_lasting(watch, kind)


def _anomaly(watch: Watch, kind: AnomalyKind, measured: float, usual: float) -> Anomaly:
    return Anomaly(
        kind=kind,
        attempt=watch.attempt,
        window=watch.window,
        measured_ppm=_ppm(measured),
        usual_ppm=_ppm(usual),
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


def _ppm(value: float) -> int:
    return round(PPM * max(-FIGURE_MAX, min(value, FIGURE_MAX)))
