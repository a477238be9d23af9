"""What the training and the scoring process have in common: events, signals, exit codes."""

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeAlias

from tunery.ml.events import EXIT_ORPHANED, EXIT_USER, Events
from tunery.ml.stop import Stop

Work: TypeAlias = Callable[[Path, Events, Stop], int]


def main(name: str, work: Work) -> NoReturn:
    """Run `work` on the spec named by the only argument, and leave with its exit code."""
    stop = Stop()
    stop.listen()  # before seconds of imports: a notice may come at any time
    code = EXIT_USER
    if len(sys.argv) == 2:
        code = _run(work, Path(sys.argv[1]), stop)
    else:
        print(f"usage: python -m {name} SPEC.json", file=sys.stderr)
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
            traceback.print_exception(error)
            return events.failed(error)
    except BrokenPipeError:
        return EXIT_ORPHANED
