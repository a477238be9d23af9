"""A process that says what a training or a scoring process says, and ends as its job's seed wants.

    python -m tests.e2e.stand_in_process SPEC.json

It starts in a fraction of a second, because it imports no torch. Checkpoints are files with their
step; at `FAILING_STEP` a training fails, ends well, or goes on, whatever the attempt.
"""

import json
import signal
import sys
import time
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from schemas.training import FailureCause
from tunery.work.codec import decode_score_spec, decode_train_spec, encode_event, encode_scores
from tunery.work.events import (
    AnyWorkEvent,
    Checkpointed,
    Failed,
    FileDigest,
    Finished,
    Preempted,
    ScoringFinished,
    ScoringStarted,
    Started,
    StepCompleted,
)
from tunery.work.exits import EXIT_OF_CAUSE, ExitCode
from tunery.work.scores import HoldoutScores, Scores
from tunery.work.spec import ScoreSpec, TrainSpec

Story: TypeAlias = Literal[
    # how its training fails
    "oom",
    "divergence",
    "bad_data",
    "user",
    "platform",
    "unjudged",  # its scores cannot be read
    "unpublished",  # its adapter cannot be published
    "endless",  # it trains until it is told to stop, and writes a checkpoint then
    "stubborn",  # the same, without that checkpoint
    "spiking",  # endless, and its loss jumps
    "nothing_learnt",  # it fails, as its tenant has asked for
]
STORIES: Final[tuple[Story, ...]] = get_args(Story)  # the seed of a job is an index
STEP_S: Final = 0.1
FIRST_CHECKPOINT: Final = 3  # the only one that does not follow a notice
FAILING_STEP: Final = 12
SPIKE_STEP: Final = 40
STEPS: Final = 100_000
MANIFEST: Final = "manifest.json"
WEIGHTS: Final = "adapter_model.safetensors"
CONFIG: Final = "adapter_config.json"


class Stand:
    """One process. `stop`: it was told to end."""

    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self.stop = False
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: object) -> None:
        self.stop = True

    def elapsed_ms(self) -> int:
        return int(1_000 * (time.monotonic() - self.began_s))

    def say(self, event: AnyWorkEvent) -> None:
        sys.stdout.buffer.write(encode_event(event, self.elapsed_ms()) + b"\n")
        sys.stdout.buffer.flush()


def write(folder: Path, name: str, content: bytes) -> FileDigest:
    """Write a file of a checkpoint or of an adapter."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
    return FileDigest(name=name, sha256=sha256(content).hexdigest(), bytes=len(content))


def train(process: Stand, spec: TrainSpec) -> ExitCode:
    """One attempt of the story that the seed names."""
    story: Story = STORIES[spec.hyper.seed]
    resumed = spec.resume[0] if spec.resume else None
    step = 0
    if resumed is not None:
        step = json.loads((Path(resumed.dir) / MANIFEST).read_bytes())["step"]
    process.say(started(spec, step))
    while True:
        time.sleep(STEP_S)
        step += 1
        is_high = story == "spiking" and step >= SPIKE_STEP
        process.say(step_completed(step, loss=9.0 if is_high else 1.0))
        if process.stop:
            if story != "stubborn":
                checkpoint(process, spec, step)
            process.say(Preempted(step=step))
            return ExitCode.PREEMPTED
        if step == FIRST_CHECKPOINT:
            checkpoint(process, spec, step)
        if step < FAILING_STEP:
            continue
        match story:
            case "oom" | "divergence" | "bad_data" | "user" | "platform" | "nothing_learnt":
                return fail(process, story)
            case "unjudged" | "unpublished":
                return finish(process, spec, story, step)
            case "endless" | "stubborn" | "spiking":
                pass


def started(spec: TrainSpec, step: int) -> Started:
    resumed = spec.resume[0] if spec.resume else None
    return Started(
        resumed_from_step=step,
        loaded_manifest=None if resumed is None else resumed.manifest_sha256,
        skipped=(),
        total_steps=STEPS,
        tokens_total=STEPS,
        tokens=step,
        hyper=spec.hyper,
        precision="fp32",
        environment={},
        rows=1,
        labels=1,
        packing_difference_nats=0.0,
    )


def step_completed(step: int, loss: float) -> StepCompleted:
    return StepCompleted(
        step=step,
        total_steps=STEPS,
        epoch=step / STEPS,
        loss=loss,
        grad_norm=1.0,
        learning_rate=0.001,
        mean_token_accuracy=None,
        tokens=step,
        tokens_total=STEPS,
    )


def checkpoint(process: Stand, spec: TrainSpec, step: int) -> None:
    folder = Path(spec.out_dir) / f"step-{step:08}"
    manifest = write(folder, MANIFEST, json.dumps({"step": step}).encode())
    process.say(
        Checkpointed(
            step=step,
            epoch=step / STEPS,
            dir=str(folder),
            manifest_sha256=manifest.sha256,
            tokens=step,
            files=(manifest,),
            captured_elapsed_ms=process.elapsed_ms(),
            captured_monotonic_ms=int(1_000 * time.monotonic()),
            write_ms=0,
        )
    )


def fail(process: Stand, cause: FailureCause) -> ExitCode:
    process.say(Failed(cause=cause, message=f"a story of {cause}", advice=""))
    return EXIT_OF_CAUSE[cause]


def finish(process: Stand, spec: TrainSpec, story: Story, step: int) -> ExitCode:
    """End well, with an adapter that says its story and is no adapter."""
    folder = Path(spec.out_dir) / "adapter"
    weights = write(folder, WEIGHTS, b"no weights")
    config = write(folder, CONFIG, json.dumps(story).encode())
    process.say(
        Finished(
            adapter_dir=str(folder),
            adapter_sha256=weights.sha256,
            config_sha256=config.sha256,
            files=(weights, config),
            steps=step,
            tokens=step,
            final_loss=1.0,
        )
    )
    return ExitCode.FINISHED


def score(process: Stand, spec: ScoreSpec) -> ExitCode:
    """Scores of nothing, or what are no scores."""
    process.say(ScoringStarted(items=0, prompts=0))
    time.sleep(STEP_S)
    out, config = Path(spec.out), Path(spec.adapter_dir) / CONFIG
    unjudged = json.loads(config.read_bytes()) == "unjudged"
    scores = Scores(
        base_sha256=spec.base_sha256,
        adapter_sha256="0" * 64,
        precision="fp32",
        items=(),
        holdout=HoldoutScores(
            rows=0,
            tokens=0,
            base_loss=None,
            adapter_loss=None,
            base_perplexity=None,
            adapter_perplexity=None,
            generated=0,
            base_exact=0,
            adapter_exact=0,
        ),
        answers=(),
    )
    results = write(out.parent, out.name, b"{}" if unjudged else encode_scores(scores))
    process.say(ScoringFinished(results=str(out), sha256=results.sha256, bytes=results.bytes))
    return ExitCode.FINISHED


def main(path: Path) -> ExitCode:
    """Train or score, whichever the spec is for."""
    process, content = Stand(), path.read_bytes()
    try:
        spec = decode_train_spec(content)
    except msgspec.ValidationError:
        return score(process, decode_score_spec(content))
    return train(process, spec)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
