"""What the training and the scoring process have in common: events, signals, exit codes."""

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn, TypeAlias

from tunery.ml.events import EXIT_ORPHANED, EXIT_USER, Events
from tunery.ml.stop import Stop

Work: TypeAlias = Callable[[Path, Events, Stop], int]
NICENESS: Final = (
    19  # whoever answers people or sends the node's heartbeats on this machine is first
)


def main(name: str, work: Work) -> NoReturn:
    """Run `work` on the spec named by the only argument, and leave with its exit code."""
    stop = Stop()
    os.nice(NICENESS)
    stop.listen()  # before seconds of imports: a notice may come at any time
    code = EXIT_USER
    if len(sys.argv) == 2:
        code = _run(work, Path(sys.argv[1]), stop)
    else:
        print(f"usage: python -m {name} SPEC.json", file=sys.stderr)
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(code)  # torch's threads must not delay or change it


def _run(work: Work, spec: Path, stop: Stop) -> int:
    events = Events.on_stdout()
    try:
        try:
            return work(spec, events, stop)
        except BrokenPipeError:
            raise
        except Exception as error:  # the last line says what went wrong, whatever it was
            code = events.failed(error)
            with suppress(OSError):  # the log may lie on the very disk that is full
                traceback.print_exception(error)
            return code
    except BrokenPipeError:
        return EXIT_ORPHANED
