"""Train one adapter on plain files, or several on one base model.

    python -m tunery.ml.train SPEC.json

Reads a `tunery.work.spec.TrainSpec`, writes `tunery.work.events` to standard output, and leaves
with a `tunery.work.exits.ExitCode`. On SIGTERM or SIGINT the step in progress is finished and
checkpointed, then the process leaves with `PREEMPTED`. With several ranks this process starts one
for each, and passes on what the first says.

A `tunery.work.spec.ColocatedSpec` names several trainings, which take their steps in turn. Each
event names its training. A line on standard input with such a name stops that one after its step;
the process leaves once all have ended, with the first code of a training that did not finish.

A `tunery.work.spec.VariantsSpec` names several variants of one training. The process says what a
single training says, and leaves the best variant (`tunery.ml.variants`).
"""

import sys
from functools import partial
from pathlib import Path

from tunery.ml.events import EventWriter
from tunery.ml.free_memory import share_heap
from tunery.ml.imports import large_imports
from tunery.ml.inputs import read_training
from tunery.ml.process import leave_out_quantising, main
from tunery.ml.rank_processes import run_ranks
from tunery.ml.stop import StopNames, StopRequest
from tunery.work.exits import ExitCode
from tunery.work.spec import ColocatedSpec, TrainSpec, VariantsSpec


def train(path: Path, events: EventWriter, stop: StopRequest, *, alone: bool = False) -> ExitCode:
    """Train on a spec file. Raises WorkError when the run cannot go on.

    alone: the process does nothing else, before or after
    """
    spec = read_training(path)
    if not isinstance(spec, TrainSpec):
        share_heap()  # before libraries start threads
    if isinstance(spec, ColocatedSpec):
        return _train_several(spec, events, stop, alone=alone)
    if isinstance(spec, VariantsSpec):
        return _train_variants(spec, events, stop, alone=alone)
    if spec.ranks > 1:
        return run_ranks(path, spec.ranks, spec.devices, events, stop)
    if alone:
        leave_out_quantising(spec.hyper.adaptation)
    with large_imports():  # torch and trl take seconds; a bad spec fails before
        from tunery.ml.fine_tuning import fine_tune

    return fine_tune(spec, events, stop)


def _train_several(
    spec: ColocatedSpec, events: EventWriter, stop: StopRequest, *, alone: bool
) -> ExitCode:
    names = StopNames(stop)
    if alone:
        leave_out_quantising("lora")
        if not sys.stdin.isatty():  # a terminal stops a background process that reads from it
            names.listen(sys.stdin.buffer)
    with large_imports():
        from tunery.ml.colocated import NamedEvents, train_together

    codes = train_together(spec.trainings, NamedEvents.on(events), names)
    return next((code for code in codes.values() if code), ExitCode.FINISHED)


def _train_variants(
    spec: VariantsSpec, events: EventWriter, stop: StopRequest, *, alone: bool
) -> ExitCode:
    if alone:
        leave_out_quantising("lora")
    with large_imports():
        from tunery.ml.variants import train_variants

    return train_variants(spec, events, stop)


if __name__ == "__main__":
    main("tunery.ml.train", partial(train, alone=True))
