"""Train one adapter on plain files.

    python -m tunery.ml.train SPEC.json

Reads a `tunery.work.spec.TrainSpec`; says `started`, `step`, `eval`, `checkpoint`, `spike`, then
one of `finished`, `preempted`, `failed`, as JSON lines; exit codes as in `tunery.ml.events`.
SIGTERM or SIGINT: the step in progress is finished and checkpointed, then the process leaves with
`EXIT_PREEMPTED`.
"""

from pathlib import Path

from tunery.ml.events import Events
from tunery.ml.process import main
from tunery.ml.stop import Stop
from tunery.work.spec import read_spec


def train(path: Path, events: Events, stop: Stop) -> int:
    """An exit code. Raises `Refused` with the cause when the run cannot go on."""
    spec = read_spec(path)
    from tunery.ml.fine_tuning import (
        attempt,  # torch and trl: seconds, and a bad spec needs neither
    )

    return attempt(spec, events, stop)


if __name__ == "__main__":
    main("tunery.ml.train", train)
