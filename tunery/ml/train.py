"""Train one adapter on plain files, or several on one base model.

    python -m tunery.ml.train SPEC.json

Reads a `tunery.work.spec.TrainSpec`, writes `tunery.work.events` to standard output, and leaves
with a `tunery.work.exits.ExitCode`. On SIGTERM or SIGINT the step in progress is finished and
checkpointed, then the process leaves with `PREEMPTED`.

With an engine of several ranks this process is the one that RANK and WORLD_SIZE name: the node
agent starts all of them, or `torchrun --nproc-per-node N -m tunery.ml.train SPEC.json`.

A `tunery.work.spec.ColocatedSpec` names several trainings, which take their steps in turn. Each
event names its training. A line on standard input with such a name stops that one after its step;
the process leaves once all have ended, with the first code of a training that did not finish.

A `tunery.work.spec.VariantsSpec` names several variants of one training. The process says what a
single training says, and leaves the best variant (`tunery.ml.variants`). A
`tunery.work.session.SessionSpec` names a folder that commands come into (`tunery.ml.session`).
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

from tunery.ml.events import EventWriter
from tunery.ml.free_memory import map_large_blocks, share_heap
from tunery.ml.imports import large_imports
from tunery.ml.inputs import read_training
from tunery.ml.process import leave_out_bitsandbytes, main, needs_bitsandbytes
from tunery.ml.stop import StopNames, StopRequest
from tunery.work.exits import ExitCode
from tunery.work.session import SessionSpec
from tunery.work.spec import ColocatedSpec, TrainSpec, VariantsSpec


def train(
    path: Path, events: EventWriter, stop: StopRequest, *, alone: bool = False, load: Any = None
) -> ExitCode:
    """Train on a spec file. Raises WorkError when the run cannot go on.

    alone: the process does nothing else, before or after
    load: gives a single training its base, as `tunery.ml.model.load_base`; None: that does
    """
    spec = read_training(path)
    if alone and not needs_bitsandbytes(spec):
        leave_out_bitsandbytes()
    if not isinstance(spec, TrainSpec):
        share_heap()  # before libraries start threads
    if isinstance(spec, ColocatedSpec):
        return _train_several(spec, events, stop, alone=alone)
    if isinstance(spec, VariantsSpec):
        return _train_variants(spec, events, stop)
    if isinstance(spec, SessionSpec):
        return _take_commands(spec, events, stop, load)
    if spec.engine.is_sharded:
        map_large_blocks()
    with large_imports():  # torch and transformers take seconds; a bad spec fails before
        from tunery.ml.fine_tuning import fine_tune
        from tunery.ml.model import load_base
        from tunery.ml.ranks import is_lost

    keeps = load is not None and spec.hyper.adaptation == "lora"  # weights that nothing changes
    try:
        return fine_tune(spec, events, stop, load if keeps else load_base)
    except Exception as error:
        if spec.ranks == 1 or not is_lost(error):
            raise
        # The rank that began it says why; this one only leaves.
        print(f"another rank is gone: {error}", file=sys.stderr)
        return ExitCode.RANK_LOST


def _take_commands(
    spec: SessionSpec, events: EventWriter, stop: StopRequest, load: Any
) -> ExitCode:
    with large_imports():
        from tunery.ml.model import load_base
        from tunery.ml.session import take_commands

    return take_commands(spec, events, stop, load or load_base)


def _train_several(
    spec: ColocatedSpec, events: EventWriter, stop: StopRequest, *, alone: bool
) -> ExitCode:
    names = StopNames(stop)
    if alone and not sys.stdin.isatty():  # a terminal stops a background process that reads it
        names.listen(sys.stdin.buffer)
    with large_imports():
        from tunery.ml.colocated import NamedEvents, train_together

    codes = train_together(spec.trainings, NamedEvents.on(events), names)
    return next((code for code in codes.values() if code), ExitCode.FINISHED)


def _train_variants(spec: VariantsSpec, events: EventWriter, stop: StopRequest) -> ExitCode:
    with large_imports():
        from tunery.ml.variants import train_variants

    return train_variants(spec, events, stop)


if __name__ == "__main__":
    main("tunery.ml.train", partial(train, alone=True))
