"""Metrics of a node: how its trainings get on, and how busy its devices are.

No label names a job. Of several trainings a gauge shows the worst, which is what an
alert asks for; figures of each job are in its metrics.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Final

from schemas.units import Ms, Tokens
from services.trainer.domain.rank_times import RankTimes, SlowestRank
from services.trainer.ports import DeviceUse
from tunery.runtime.telemetry.catalogue import computed, counter, histogram
from tunery.runtime.telemetry.figures import StateValue
from tunery.work.events import Started, StepCompleted

SPEEDS_KEPT: Final = 200  # of the newest steps
SPEEDS_NOW: Final = 5
SPEEDS_MIN: Final = 20  # before that nothing is usual
_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

RUNNING: Final = computed("tunery_trainings_running", "Trainings that have begun on this node")
LAST_STEP: Final = computed(
    "tunery_training_last_step_timestamp_seconds",
    "When the training that is silent for longest took its last step or began, as a Unix time; a "
    "session that waits for its client is not silent",
    unit="seconds",
)
LAST_CHECKPOINT: Final = computed(
    "tunery_training_last_checkpoint_timestamp_seconds",
    "When the training with the oldest stored checkpoint stored it or began, as a Unix time",
    unit="seconds",
)
SPEED: Final = computed(
    "tunery_training_speed_ratio",
    "Tokens a second of the last steps as a share of what is usual in the same training; of the "
    "slowest one, once it has taken some steps",
)
SLOWEST_RANK: Final = computed(
    "tunery_training_slowest_rank_ratio",
    "Time of a micro-batch in the slowest rank as a multiple of what is usual in the others, which "
    "wait for it; of the training where it is most",
)
DEVICE_BUSY: Final = computed(
    "tunery_device_busy_ratio", "Share of the time in which the device computes", ("device",)
)
DEVICE_MEMORY: Final = computed(
    "tunery_device_memory_used_bytes", "Memory of the device that is taken", ("device",), "bytes"
)
DEVICE_TRAINS: Final = computed(
    "tunery_device_training", "1: a training has the device; 0: none has", ("device",)
)
STEP_SECONDS: Final = histogram(
    "tunery_training_step_seconds",
    "Time from one step of a training to the next, evaluations and checkpoints included",
    (),
    _SECONDS,
)
TRAINED: Final = counter(
    "tunery_training_tokens_total", "Tokens trained on; those of lost steps count each time"
)
SPIKES: Final = counter(
    "tunery_training_loss_spikes_total", "Losses that were far above the usual ones for some steps"
)
STORE_SECONDS: Final = histogram(
    "tunery_checkpoint_store_seconds",
    "Time to store a checkpoint, from when the training process has written it",
    (),
    _SECONDS,
)
COMMAND_SECONDS: Final = histogram(
    "tunery_session_command_seconds",
    "Time from a command of a session that reaches its process to the answer, by kind",
    ("kind",),
    _SECONDS,
)
COMMANDS: Final = counter(
    "tunery_session_commands_total",
    "Commands that processes of sessions have answered, by kind and outcome: done, failed",
    ("kind", "outcome"),
)


@dataclass
class TrainingMeter:
    """One training that has begun. Times of `stepped_at` and `stored_at` are of the wall clock."""

    stepped_at: Ms
    stored_at: Ms
    elapsed_ms: Ms
    tokens: Tokens
    devices: tuple[int, ...]
    speeds: deque[float] = field(default_factory=lambda: deque(maxlen=SPEEDS_KEPT))
    ranks: RankTimes = field(default_factory=RankTimes)

    def speed_ratio(self) -> float | None:
        """The speed of now as a share of the usual one; None: too few steps were taken."""
        speeds = tuple(self.speeds)
        if len(speeds) < SPEEDS_MIN or not (usual := median(speeds)):
            return None
        return median(speeds[-SPEEDS_NOW:]) / usual


class NodeMeter:
    """Counts what trainings of this node report, by the lease that they run under.

    device_use: how busy each device is, by its number.
    """

    def __init__(self, device_use: Callable[[], Mapping[int, DeviceUse]] = dict) -> None:
        self._device_use = device_use
        self._trainings: dict[int, TrainingMeter] = {}

    def begin(self, lease: int, event: Started, devices: Iterable[int], now_ms: Ms) -> None:
        """A training has begun. devices: their numbers; none on processors."""
        self._trainings[lease] = TrainingMeter(
            now_ms, now_ms, event.elapsed_ms, event.tokens, tuple(devices)
        )

    def step(self, lease: int, event: StepCompleted, now_ms: Ms) -> None:
        """A training has taken a step."""
        training = self._trainings.get(lease)
        if training is None:
            return
        STEP_SECONDS.observe(max(0, event.elapsed_ms - training.elapsed_ms) / 1_000)
        TRAINED.inc(max(0, event.tokens - training.tokens))
        training.elapsed_ms, training.tokens = event.elapsed_ms, event.tokens
        training.stepped_at = now_ms
        if event.tokens_per_s is not None:
            training.speeds.append(event.tokens_per_s)
        training.ranks.add(event.rank_ms)

    def slowest_rank(self, lease: int) -> SlowestRank | None:
        """Return the slowest rank of a training; None: it is not known, or there is one rank."""
        training = self._trainings.get(lease)
        return None if training is None else training.ranks.slowest()

    def busy_percent(self, lease: int) -> int | None:
        """How busy the devices of a training are, their mean; None: it is not known."""
        training, uses = self._trainings.get(lease), self._device_use()
        devices = () if training is None else training.devices
        known = [uses[number].busy_percent for number in devices if number in uses]
        return round(mean(known)) if known else None

    def store(self, lease: int, took_ms: Ms, now_ms: Ms) -> None:
        """A checkpoint of a training has been stored."""
        STORE_SECONDS.observe(took_ms / 1_000)
        if (training := self._trainings.get(lease)) is not None:
            training.stored_at = now_ms

    def wait(self, lease: int, now_ms: Ms) -> None:
        """A session waits for its client: it does not stand still, and has no more to lose."""
        if (session := self._trainings.get(lease)) is not None:
            session.stepped_at = session.stored_at = now_ms

    def answer(self, lease: int, kind: str, took_ms: Ms, now_ms: Ms, *, failed: bool) -> None:
        """A session has answered a command."""
        COMMAND_SECONDS.labels(kind).observe(took_ms / 1_000)
        COMMANDS.labels(kind, "failed" if failed else "done").inc()
        if (session := self._trainings.get(lease)) is not None:
            session.stepped_at = now_ms

    def spike(self) -> None:
        """The loss of a training has jumped."""
        SPIKES.inc()

    def end(self, lease: int) -> None:
        """Forget the training of an ended lease, if it was one."""
        self._trainings.pop(lease, None)

    def figures(self) -> Iterator[StateValue]:
        """Yield the current gauges. Times of last steps and checkpoints need a training."""
        trainings = tuple(self._trainings.values())
        yield StateValue(RUNNING, (), len(trainings))
        if trainings:
            stepped_at = min(training.stepped_at for training in trainings)
            stored_at = min(training.stored_at for training in trainings)
            yield StateValue(LAST_STEP, (), stepped_at / 1_000)
            yield StateValue(LAST_CHECKPOINT, (), stored_at / 1_000)
        ratios = [training.speed_ratio() for training in trainings]
        if known := [ratio for ratio in ratios if ratio is not None]:
            yield StateValue(SPEED, (), min(known))
        slowest = [training.ranks.slowest() for training in trainings]
        if slow := [rank.ratio for rank in slowest if rank is not None]:
            yield StateValue(SLOWEST_RANK, (), max(slow))
        in_training = {device for training in trainings for device in training.devices}
        for number, use in self._device_use().items():
            labels = (str(number),)
            yield StateValue(DEVICE_BUSY, labels, use.busy_percent / 100)
            yield StateValue(DEVICE_MEMORY, labels, use.memory_bytes)
            yield StateValue(DEVICE_TRAINS, labels, number in in_training)
