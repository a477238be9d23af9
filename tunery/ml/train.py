"""Train one adapter on plain files.

    python -m tunery.ml.train SPEC.json

Reads a `tunery.work.spec.TrainSpec`, writes `tunery.work.events` to standard output, and leaves
with a `tunery.work.exits.ExitCode`. On SIGTERM or SIGINT the step in progress is finished and
checkpointed, then the process leaves with `PREEMPTED`. With several ranks this process starts one
for each, and passes on what the first says.
"""

from functools import partial
from pathlib import Path

from tunery.ml.events import EventWriter
from tunery.ml.imports import large_imports
from tunery.ml.inputs import read_train_spec
from tunery.ml.process import leave_out_quantising, main
from tunery.ml.rank_processes import run_ranks
from tunery.ml.stop import StopRequest
from tunery.work.exits import ExitCode


def train(path: Path, events: EventWriter, stop: StopRequest, *, alone: bool = False) -> ExitCode:
    """Train on a spec file. Raises WorkError when the run cannot go on.

    alone: the process does nothing else, before or after
    """
    spec = read_train_spec(path)
    if spec.ranks > 1:
        return run_ranks(path, spec.ranks, spec.devices, events, stop)
    if alone:
        leave_out_quantising(spec.hyper.adaptation)
    with large_imports():  # torch and trl take seconds; a bad spec fails before
        from tunery.ml.fine_tuning import fine_tune

    return fine_tune(spec, events, stop)


if __name__ == "__main__":
    main("tunery.ml.train", partial(train, alone=True))
