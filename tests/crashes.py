"""Trainings that are killed at a named point, in processes that are forked with torch imported.

    python -m tests.crashes

Reads orders from standard input, one JSON object a line: `spec` and `events` (paths), `point` (a
name of `POINTS`, or null for none). Answers each with the exit status of its process. The process
kills itself with SIGKILL, as the kernel does: nothing is flushed, closed or deleted.

With `spare_bytes` the process gets only so much more memory, from the step `spare_from` on
(null: at once): the kernel refuses what goes beyond, as on a machine that has no more.
"""

import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple


class Point(NamedTuple):
    """A call of a function of the trainer."""

    target: str  # module and name in it
    call: int = 1  # which one, from 1, of those that `when` takes
    after: bool = False  # killed when it returns, not before
    torn: bool = False  # of what it writes only the first half is there
    when: Callable[..., bool] = lambda *args, **kwargs: True


def said(kind: str, step: int | None = None) -> Callable[..., bool]:
    """Whether it is this event that is emitted."""

    def is_it(writer: Any, event: Any) -> bool:
        return type(event).__name__ == kind and step in (None, getattr(event, "step", None))

    return is_it


def renames_to(name: str) -> Callable[..., bool]:
    return lambda path, target: Path(target).name == name


ML: Final = "tunery.ml"
EMIT: Final = f"{ML}.events:EventWriter.emit"
# Two micro-batches a step, three steps an epoch, six in all; a checkpoint after each.
POINTS: Final[dict[str, Point]] = {
    "before the first step": Point(f"{ML}.loop:TrainingLoop.take_step"),
    "in the forward pass": Point(f"{ML}.loop:TrainingLoop.loss", 8),
    "between two micro-batches": Point(f"{ML}.engines.whole:WholeEngine.backward", 8, after=True),
    "before gradients are clipped": Point(f"{ML}.adamw:AdapterAdamW.clip", 4),
    "in the optimizer": Point(f"{ML}.adamw:AdapterAdamW.publish", 6),
    "before the state is copied": Point(f"{ML}.state:take", 4),
    "while the state is copied": Point(f"{ML}.state:Copies.of", 8),
    "once the state is copied": Point(f"{ML}.state:take", 4, after=True),
    "in a file of a checkpoint": Point(f"{ML}.state:save_file", 11, torn=True),
    "between two files": Point(f"{ML}.state:save_file", 11),
    "before the manifest": Point(f"{ML}.checkpoints:digest_file", 25),
    "while files are synced": Point(f"{ML}.durable:fsync", 35),
    "before the rename": Point("pathlib:Path.rename", when=renames_to("step-00000004")),
    "after the rename": Point("pathlib:Path.rename", after=True, when=renames_to("step-00000004")),
    "before it is read back": Point(f"{ML}.checkpoints:verify", 4),
    "before the oldest is deleted": Point(f"{ML}.checkpoints:keep_newest", 4),
    "while the oldest is deleted": Point("shutil:rmtree"),
    "before the record": Point(EMIT, when=said("Checkpointed", 4)),
    "after the record": Point(EMIT, after=True, when=said("Checkpointed", 4)),
    "during the upload": Point(EMIT, after=True, when=said("Checkpointed", 4)),
    "at the end of an epoch": Point(EMIT, after=True, when=said("StepCompleted", 3)),
    "at the beginning of an epoch": Point(EMIT, when=said("StepCompleted", 4)),
    "in an evaluation": Point(f"{ML}.loop:mean_scores"),
    "after an evaluation": Point(EMIT, after=True, when=said("Evaluated")),
    "at the last step": Point(EMIT, after=True, when=said("StepCompleted", 6)),
    "while what was trained is written": Point(f"{ML}.adapters:save_file", torn=True),
    "before what was trained is renamed": Point("pathlib:Path.rename", when=renames_to("adapter")),
    "in the reference stage": Point(f"{ML}.reference:row_logps", 3),
    "in a file of the reference stage": Point(f"{ML}.reference:save_file", torn=True),
    "after the reference stage": Point(f"{ML}.loop:compute_references", after=True),
    "in the answers to prompts": Point(f"{ML}.generation:answers", 2),
    "in the likelihoods of answers": Point(f"{ML}.reinforcement:Reinforcement._losses", 7),
    "while answers are written": Point(f"{ML}.rollouts:SeededNoise.__call__", 30),
    "between two grades": Point(f"{ML}.rollouts:grade", 15),
    "while likeliest answers are graded": Point(f"{ML}.rollouts:Rollouts.rewards", 2),
    "while models are asked for scores": Point(f"{ML}.model_scores:_ask", 3),
    "once models gave scores": Point(f"{ML}.model_scores:_ask", 3, after=True),
    "before the end is said": Point(EMIT, when=said("Finished")),
    "while a checkpoint is loaded": Point(f"{ML}.adamw:AdapterAdamW.restore"),
}
IMPORTED: Final = ("tunery.ml.fine_tuning", "transformers.models.llama.modeling_llama")
# What the agent had not stored yet is not named to the next attempt.
UNRECORDED: Final = frozenset({"during the upload"})


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)  # it does not come back


def plant(point: Point) -> None:
    """Put the kill around the function."""
    module, _, path = point.target.partition(":")
    owner: Any = import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    function, calls = getattr(owner, name), 0

    def killing(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += point.when(*args, **kwargs)
        is_it = calls == point.call and point.when(*args, **kwargs)
        if is_it and not point.after and not point.torn:
            kill()
        result = function(*args, **kwargs)
        if is_it and point.torn:
            file = Path(args[1])
            os.truncate(file, file.stat().st_size // 2)
        if is_it:
            kill()
        return result

    setattr(owner, name, killing)


def limit_memory(spare_bytes: int) -> None:
    """Limit what this process may allocate from now on."""
    status = Path("/proc/self/status").read_text().splitlines()
    sizes = dict(line.split(":", 1) for line in status)
    in_use = 1024 * int(sizes["VmData"].split()[0])
    resource.setrlimit(resource.RLIMIT_DATA, (in_use + spare_bytes, resource.RLIM_INFINITY))


def limit_memory_after(step: int, spare_bytes: int) -> None:
    """Limit it once the step is reported."""
    from tunery.ml.events import EventWriter

    emit, is_it = EventWriter.emit, said("StepCompleted", step)

    def limiting(writer: EventWriter, event: Any) -> None:
        emit(writer, event)
        if is_it(writer, event):
            limit_memory(spare_bytes)

    EventWriter.emit = limiting  # type: ignore[assignment, method-assign]  # of this process alone


def attempt(order: dict[str, Any]) -> int:
    """Train in this process; the exit code."""
    from tunery.ml.events import EventWriter
    from tunery.ml.fine_tuning import fine_tune
    from tunery.work.codec import decode_train_spec

    if order["point"] is not None:
        plant(POINTS[order["point"]])
    if order.get("spare_from") is not None:
        limit_memory_after(order["spare_from"], order["spare_bytes"])
    elif order.get("spare_bytes") is not None:
        limit_memory(order["spare_bytes"])
    with Path(order["events"]).open("wb") as stream:
        writer = EventWriter(stream, time.monotonic())
        try:
            spec = decode_train_spec(Path(order["spec"]).read_bytes())
            return fine_tune(spec, writer, lambda: False)
        except Exception as error:  # its place is what a failing test needs
            traceback.print_exc()
            return writer.emit_failure(error)


def main() -> None:
    """Fork a process for each order."""
    for name in IMPORTED:
        import_module(name)

    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if not pid:
            os._exit(attempt(order))
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
