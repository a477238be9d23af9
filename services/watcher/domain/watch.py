"""What is kept of a job, and what a message of telemetry changes and shows.

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

#: of a window's median speed: half of the usual one, as the alert TrainingIsSlow
SLOW_SHARE: Final = 0.5
#: of the time; a training that computes keeps its devices busy for most of it, and an input that
#: is ten times too slow leaves them a tenth. The alert DeviceIdlesInTraining has 5, of one device.
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
    """What a step says of speed and devices."""

    tokens_per_s: float | None
    busy_percent: int | None


class WindowSpeed(Struct, frozen=True, array_like=True):
    """The median speed of a window, in tokens a second."""

    window: Ms
    tokens_per_s: float


class Watch(Struct, frozen=True, array_like=True):
    """The newest attempt of a job.

    last_at: when it said something last, by the time of the broker.
    window: when the open window begins.
    pause_ms: the longest one between two messages.
    step: the newest; -1 before the first. total_steps: 0 where there are none.
    samples: of the open window, the newest last.
    losses: the usual ones.
    speeds: medians of windows of usual speed, the newest last.
    lasting: what is unusual now and was reported.
    closed: the newest window that was judged.
    """

    tenant: str
    attempt: int
    last_at: Ms
    window: Ms
    pause_ms: Ms = 0
    step: int = -1
    total_steps: int = 0
    samples: tuple[StepSample, ...] = ()
    losses: LossWindow = LossWindow()
    speeds: tuple[float, ...] = ()
    lasting: frozenset[AnomalyKind] = frozenset()
    closed: WindowSpeed | None = None

    @property
    def has_finished(self) -> bool:
        """Whether it has taken its last step, so that it may be silent."""
        return 0 < self.total_steps <= self.step


def observe(
    watch: Watch | None, message: Telemetry, at: Ms, window_ms: Ms
) -> tuple[Watch, tuple[Anomaly, ...]]:
    """The watch after a message, and what it shows for the first time. at: the broker's time."""
    if watch is None or message.attempt > watch.attempt:
        watch = Watch(message.tenant, message.attempt, at, at - at % window_ms)
    elif message.attempt < watch.attempt:
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
    # of variants that take turns each has usual losses of its own, which its process knows
    loss = None if message.variant is not None else _finite(message.loss)
    watch, of_loss = _judge_loss(watch, loss)
    return watch, (*of_window, *of_loss)


def judge_silence(watch: Watch, silent_ms: Ms, stuck_ms: Ms, window_ms: Ms) -> Anomaly | None:
    """The anomaly of an attempt that has said nothing for so long; None: it is none, or known."""
    if watch.has_finished or "stuck" in watch.lasting:
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
    """It was reported, and is not again before it has passed."""
    return replace(watch, lasting=watch.lasting | {kind})


def _judge_loss(watch: Watch, loss: float | None) -> tuple[Watch, tuple[Anomaly, ...]]:
    if loss is None:
        return watch, ()
    watch = replace(watch, losses=watch.losses.add(loss))
    if not watch.losses.spiking:
        return watch, ()
    return watch, (_anomaly(watch, "loss_spike", loss, median(watch.losses.losses)),)


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
