"""Trains variants of one training in turns, and says of them what a single training says.

Each variant is what it is alone, to the bit (`tunery.ml.colocated`). Steps and tokens are those of
all together. The one with the lowest validation loss at its end is left; one that diverges is left
out. Any other failure stops the others, because it is one of the process or of what all read.

    out/
        0/step-00000010/   0/adapter/    of the first variant, as it has them alone
        1/step-00000020/   …
        variants-….json                  names the newest checkpoint of each, and its own SHA-256

These files together are a checkpoint. Each variant goes on by itself, so any of its checkpoints
fits to any of the others'. There is a new one once each that still trains has a new one.
"""

import math
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from schemas.records import build_from
from tunery.ml import checkpoints
from tunery.ml.colocated import train_together
from tunery.ml.durable import fsync
from tunery.ml.events import EventWriter
from tunery.ml.turns import Turn
from tunery.work.events import (
    AnyWorkEvent,
    Checkpointed,
    Evaluated,
    Failed,
    FileDigest,
    Finished,
    LossSpiked,
    Noted,
    Preempted,
    Sampled,
    SkippedCandidate,
    Started,
    StepCompleted,
)
from tunery.work.exits import EXIT_OF_CAUSE, ExitCode
from tunery.work.spec import ResumeCandidate, TrainSpec, VariantsSpec

FORMAT: Final = 1
NAME: Final = "variants-{}.json"


class CheckpointPart(Struct, frozen=True, kw_only=True):
    """The newest checkpoint of a variant."""

    dir: str  # its folder in that of the whole checkpoint
    manifest_sha256: str
    step: int
    epoch: float
    tokens: int
    files: tuple[FileDigest, ...]
    # validation loss of what the variant would leave, as far as it is known
    valid_loss: float | None


class CheckpointParts(Struct, frozen=True, kw_only=True):
    """Index of a checkpoint of all variants."""

    format: int
    # newest checkpoint of each variant; None: it starts from scratch
    parts: tuple[CheckpointPart | None, ...]


Loaded = tuple[ResumeCandidate, CheckpointParts]


def train_variants(
    spec: VariantsSpec, events: EventWriter, must_stop: Callable[[], bool]
) -> ExitCode:
    """Train all variants until they are done or asked to stop, and name the best one.

    Raises WorkError as `tunery.ml.fine_tuning.fine_tune` does.
    """
    loaded, skipped = choose(spec)
    job = VariantsTraining(spec, events, loaded, skipped)
    trainings = {
        name: replace(training, resume=job.resume_of(int(name)))
        for name, training in spec.trainings.items()
    }
    codes = train_together(trainings, job.voice, lambda name: must_stop() or job.has_failed)
    if ExitCode.ORPHANED in codes.values():
        return ExitCode.ORPHANED
    return job.end()


def choose(spec: VariantsSpec) -> tuple[Loaded | None, tuple[SkippedCandidate, ...]]:
    """The first checkpoint whose every byte is as named, its parts copied to where they were."""
    skipped: list[SkippedCandidate] = []
    for candidate in spec.training.resume:
        try:
            parts = read(candidate, len(spec.hypers))
        except checkpoints.Damaged as damaged:
            skipped.append(
                SkippedCandidate(
                    dir=candidate.dir,
                    manifest_sha256=candidate.manifest_sha256,
                    reason=str(damaged),
                )
            )
            continue
        for part in parts.parts:
            if part is not None:
                target = Path(spec.training.out_dir) / part.dir
                shutil.copytree(Path(candidate.dir) / part.dir, target, dirs_exist_ok=True)
        return (candidate, parts), tuple(skipped)
    return None, tuple(skipped)


def read(candidate: ResumeCandidate, count: int) -> CheckpointParts:
    """The parts of a checkpoint of `count` variants. Raises Damaged saying what is wrong."""
    folder, digest = Path(candidate.dir), candidate.manifest_sha256
    name = NAME.format(digest)
    try:
        content = (folder / name).read_bytes()
    except OSError as error:
        raise checkpoints.Damaged(f"{name} cannot be read: {error.strerror}") from error
    if sha256(content).hexdigest() != digest:
        raise checkpoints.Damaged(f"{name} is not the one that was accepted")
    try:
        parts = msgspec.json.decode(content, type=CheckpointParts)
    except msgspec.MsgspecError as error:
        raise checkpoints.Damaged(f"{name}: {error}") from error
    if parts.format != FORMAT or len(parts.parts) != count:
        raise checkpoints.Damaged(
            f"{name}: its format is {parts.format}, not {FORMAT}, or it is not of {count} variants"
        )
    for part in parts.parts:
        if part is not None:
            checkpoints.verify(folder / part.dir, part.manifest_sha256)
    return parts


def write(folder: Path, parts: CheckpointParts) -> FileDigest:
    """Name the parts of a checkpoint in a file that never changes."""
    content = msgspec.json.format(msgspec.json.encode(parts, order="sorted"), indent=2) + b"\n"
    digest = sha256(content).hexdigest()
    path = folder / NAME.format(digest)
    path.write_bytes(content)
    fsync(path)
    return FileDigest(name=path.name, sha256=digest, bytes=len(content))


@dataclass
class VariantRun:
    """Progress of one variant."""

    spec: TrainSpec
    # part, is_new: its newest checkpoint, and whether it came since the last one of all
    part: CheckpointPart | None
    valid_loss: float | None  # validation loss of the weights that it would leave
    step: int = 0
    total_steps: int = 0
    tokens: int = 0
    tokens_total: int = 0
    started: Started | None = None
    saved: Checkpointed | None = None  # its last checkpoint event in this attempt
    is_new: bool = False
    ending: Finished | Preempted | Failed | None = None  # its last event


class VariantEvents(EventWriter):
    """Event writer of one variant, which passes its events to the job of all."""

    def __init__(self, number: int, turn: Turn, job: "VariantsTraining") -> None:
        super().__init__(job.events.stream, job.events.started_s)
        self._number, self._turn, self._job = number, turn, job

    def emit(self, event: AnyWorkEvent) -> None:
        """Send an event. No variant trains before all are ready. Raises BrokenPipeError."""
        self._job.hear(self._number, event)
        if isinstance(event, Started):
            self._turn.pass_on()


class VariantsTraining:
    """Event sink for the training of all variants. Any thread may send."""

    def __init__(
        self,
        spec: VariantsSpec,
        events: EventWriter,
        loaded: Loaded | None,
        skipped: tuple[SkippedCandidate, ...],
    ) -> None:
        parts = loaded[1].parts if loaded else (None,) * len(spec.hypers)
        self.events = events
        self.has_failed = False
        self._out, self._keep = Path(spec.training.out_dir), spec.training.keep_checkpoints
        self._out.mkdir(parents=True, exist_ok=True)
        self._loaded, self._skipped = loaded, skipped
        self._variants = [
            VariantRun(training, part, part.valid_loss if part else None)
            for training, part in zip(spec.trainings.values(), parts, strict=True)
        ]
        self._has_begun = False
        self._saved: Checkpointed | None = None  # the last one of a variant
        self._manifests = list[Path]()
        self._one_at_a_time = threading.Lock()

    def resume_of(self, number: int) -> tuple[ResumeCandidate, ...]:
        """Return the checkpoint from which a variant resumes; empty: it starts from scratch."""
        part = self._variants[number].part
        if part is None:
            return ()
        folder = str(self._out / part.dir)
        return (ResumeCandidate(dir=folder, manifest_sha256=part.manifest_sha256),)

    def voice(self, name: str, turn: Turn) -> EventWriter:
        return VariantEvents(int(name), turn, self)

    def hear(self, number: int, event: AnyWorkEvent) -> None:
        """Say what follows from an event of a variant. Raises BrokenPipeError."""
        with self._one_at_a_time:
            self._hear(number, self._variants[number], event)

    def _hear(self, number: int, variant: VariantRun, event: AnyWorkEvent) -> None:
        match event:
            case Started():
                variant.started = event
                variant.step, variant.total_steps = event.resumed_from_step, event.total_steps
                variant.tokens, variant.tokens_total = event.tokens, event.tokens_total
                self._begin()
            case StepCompleted():
                variant.step, variant.tokens = event.step, event.tokens
                self.events.emit(replace(event, variant=number, **self._progress()))
            case Evaluated():
                self._evaluate(variant, event)
                self.events.emit(replace(event, variant=number, step=self._progress()["step"]))
            case Checkpointed():
                self._save(number, variant, event)
            case Finished() | Preempted() | Failed():
                self._end_one(number, variant, event)
            case Noted() | LossSpiked() | Sampled():
                self.events.emit(replace(event, variant=number))
            case _:
                self.events.emit(event)

    def _progress(self) -> dict[str, int]:
        names = ("step", "total_steps", "tokens", "tokens_total")
        return {name: sum(getattr(variant, name) for variant in self._variants) for name in names}

    def _begin(self) -> None:
        """Say that the training has begun, once no variant is on its way to its first step."""
        started = [variant.started for variant in self._variants if variant.started is not None]
        waits = any(v.started is None and v.ending is None for v in self._variants)
        if self._has_begun or waits or not started or self.has_failed:
            return
        self._has_begun = True
        first = next((start for start in started if start.loaded_manifest), started[0])
        begun = replace(
            first,
            loaded_manifest=self._loaded[0].manifest_sha256 if self._loaded else None,
            skipped=self._skipped,
            resumed_from_step=sum(start.resumed_from_step for start in started),
            total_steps=sum(start.total_steps for start in started),
            tokens=sum(start.tokens for start in started),
            tokens_total=sum(start.tokens_total for start in started),
        )
        self.events.emit(begun)
        for number, variant in enumerate(self._variants):
            if variant.started is not None and variant.started.skipped:
                reason = variant.started.skipped[0].reason
                text = f"it begins anew: its checkpoint cannot be used, because {reason}"
                self.events.emit(Noted(step=0, message=text, variant=number))

    def _evaluate(self, variant: VariantRun, event: Evaluated) -> None:
        """Update the loss of the weights that a variant would leave: the best, or the last ones."""
        known, loss = variant.valid_loss, event.valid_loss
        keeps_best = variant.spec.hyper.best_checkpoint
        if keeps_best and known is not None and (loss is None or loss >= known):
            return
        variant.valid_loss = loss

    def _save(self, number: int, variant: VariantRun, event: Checkpointed) -> None:
        variant.part = build_from(
            CheckpointPart,
            event,
            dir=f"{number}/{Path(event.dir).name}",
            valid_loss=variant.valid_loss,
        )
        variant.saved = self._saved = event
        variant.is_new = True
        self._save_all()

    def _save_all(self) -> None:
        """Say that there is a checkpoint of all, once each that still trains has a new one."""
        last = self._saved
        training = [variant for variant in self._variants if variant.ending is None]
        if last is None or not all(variant.is_new for variant in training):
            return
        if not any(variant.is_new for variant in self._variants):
            return
        parts = [variant.part for variant in self._variants]
        known = [part for part in parts if part is not None]
        manifest = write(self._out, CheckpointParts(format=FORMAT, parts=tuple(parts)))
        self._manifests.append(self._out / manifest.name)
        for path in self._manifests[: -self._keep]:
            path.unlink(missing_ok=True)
        for variant in self._variants:
            variant.is_new = False
        saves = [variant.saved for variant in training if variant.saved is not None]
        earliest = min(saves, key=lambda saved: saved.captured_monotonic_ms, default=last)
        self.events.emit(
            replace(
                last,
                step=sum(part.step for part in known),
                epoch=min(part.epoch for part in known),
                dir=str(self._out),
                manifest_sha256=manifest.sha256,
                tokens=sum(part.tokens for part in known),
                files=(
                    *(
                        replace(file, name=f"{part.dir}/{file.name}")
                        for part in known
                        for file in part.files
                    ),
                    manifest,
                ),
                captured_elapsed_ms=earliest.captured_elapsed_ms,
                captured_monotonic_ms=earliest.captured_monotonic_ms,
            )
        )

    def _end_one(
        self, number: int, variant: VariantRun, event: Finished | Preempted | Failed
    ) -> None:
        variant.ending = event
        if isinstance(event, Finished):
            variant.tokens = event.tokens
        if isinstance(event, Failed):
            variant.valid_loss = None
            if event.cause != "divergence":
                self.has_failed = True
                self.events.emit(replace(event, variant=number))
            else:
                text = f"it is left out: {event.message}"
                self.events.emit(Noted(step=variant.step, message=text, variant=number))
        self._begin()
        self._save_all()

    def end(self) -> ExitCode:
        """Say how the training of all has ended. Raises BrokenPipeError."""
        endings = [variant.ending for variant in self._variants]
        failures = [ending for ending in endings if isinstance(ending, Failed)]
        serious = [failed for failed in failures if failed.cause != "divergence"]
        if serious:
            return EXIT_OF_CAUSE[serious[0].cause]
        if any(isinstance(ending, Preempted) for ending in endings):
            folder = str(self._out) if self._saved else None
            self.events.emit(Preempted(step=self._progress()["step"], checkpoint=folder))
            return ExitCode.PREEMPTED
        finished = {n: ending for n, ending in enumerate(endings) if isinstance(ending, Finished)}
        if not finished:
            self.events.emit(failures[0])
            return EXIT_OF_CAUSE[failures[0].cause]
        losses = tuple(variant.valid_loss for variant in self._variants)
        best = min(finished, key=lambda n: (math.inf if (x := losses[n]) is None else x, n))
        said = replace(
            finished[best],
            tokens=self._progress()["tokens"],
            variant=best,
            valid_losses=losses,
        )
        self.events.emit(said)
        return ExitCode.FINISHED
