"""The main function of the training and the scoring process: events, signals, exit codes."""

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn, TypeAlias

from tunery.ml.events import EventWriter
from tunery.ml.stop import StopRequest
from tunery.work.exits import ExitCode
from tunery.work.session import SessionSpec
from tunery.work.spec import ColocatedSpec, TrainSpec, VariantsSpec

WorkFunction: TypeAlias = Callable[[Path, EventWriter, StopRequest], ExitCode]
NICENESS: Final = 19  # services on this machine, and the agent's heartbeats, have priority


def needs_bitsandbytes(spec: TrainSpec | ColocatedSpec | VariantsSpec | SessionSpec) -> bool:
    """Return whether a training quantises its base or its moments."""
    if isinstance(spec, TrainSpec):
        return spec.hyper.needs_bitsandbytes
    if isinstance(spec, SessionSpec):
        return False
    return any(training.hyper.needs_bitsandbytes for training in spec.trainings.values())


def leave_out_bitsandbytes() -> None:
    """Have PEFT and transformers do without bitsandbytes, where nothing is quantised.

    They import it because it is installed: two of the twelve seconds of processor time that all
    imports take together, and 54 MB. For a process that does one piece of work: once they are
    imported without it, they stay so.
    """
    sys.modules.setdefault("bitsandbytes", None)  # type: ignore[arg-type]  # "not installed"


def main(name: str, work: WorkFunction) -> NoReturn:
    """Run `work` on the spec named by the only argument, and leave with its exit code."""
    stop = StopRequest()
    os.nice(NICENESS)
    stop.listen()  # before the imports, which take seconds: a signal may arrive at any time
    if len(sys.argv) == 2:
        run_to_end(work, Path(sys.argv[1]), stop)
    print(f"usage: python -m {name} SPEC.json", file=sys.stderr)
    sys.exit(ExitCode.USER)


def run_to_end(work: WorkFunction, spec: Path, stop: StopRequest) -> NoReturn:
    """Run `work` on a spec, and leave with its exit code."""
    events = EventWriter.on_stdout()
    code = code_of(lambda: work(spec, events, stop), events)
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(code)  # torch's threads must not delay or change it


def code_of(work: Callable[[], ExitCode], events: EventWriter) -> ExitCode:
    """How work ends. Where it raises, its last event says what went wrong."""
    try:
        try:
            return work()
        except BrokenPipeError:
            raise
        except Exception as error:  # any error at all
            code = events.emit_failure(error)
            with suppress(OSError):  # the log may be on the disk that is full
                traceback.print_exception(error)
            return code
    except BrokenPipeError:
        return ExitCode.ORPHANED
