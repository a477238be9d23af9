"""Train one adapter on plain files.

    python -m tunery.ml.train SPEC.json

Reads a `tunery.ml.spec.TrainSpec`; says `started`, `step`, `eval`, `checkpoint`, `spike`, then one
of `finished`, `preempted`, `failed`, as JSON lines; exit codes as in `tunery.ml.events`. SIGTERM
or SIGINT: the step in progress is finished and checkpointed, then the process leaves with
`EXIT_PREEMPTED`.
"""

import os
import signal
import sys
from pathlib import Path
from types import FrameType

from tunery.ml.events import EXIT_ORPHANED, EXIT_USER, Events
from tunery.ml.spec import read_spec


class Stop:
    """Remembers that the process was told to stop."""

    def __init__(self) -> None:
        self.asked = False

    def listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m tunery.ml.train SPEC.json", file=sys.stderr)
        return EXIT_USER
    stop = Stop()
    stop.listen()  # before seconds of imports: a notice may come at any time
    events = Events.on_stdout()
    try:
        spec = read_spec(Path(arguments[0]))
        from tunery.ml.attempt import attempt  # torch and trl, seconds

        return attempt(spec, events, lambda: stop.asked)
    except BrokenPipeError:
        return EXIT_ORPHANED
    except Exception as error:  # the last line must say what went wrong, whatever it was
        return _fail(events, error)


def _fail(events: Events, error: Exception) -> int:
    import traceback  # only when needed

    traceback.print_exception(error)
    try:
        return events.failed(error)
    except BrokenPipeError:
        return EXIT_ORPHANED


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # torch's threads must not delay or change the exit code
