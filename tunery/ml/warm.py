"""A process that has imported all that work needs, and waits for one piece of it.

    python -m tunery.ml.warm

It reads a `tunery.work.warm.Order` from standard input, says that it has begun, and is from then on
the process that the order names. It knows nothing of any tenant before, and takes a second order
only after a training, for the evaluation of its job (`tunery.ml.train_and_score`). When its
standard input ends without one, its agent is gone, and it leaves.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

from tunery.ml.free_memory import share_heap
from tunery.ml.imports import large_imports
from tunery.ml.orders import become, read_order
from tunery.ml.process import NICENESS, WorkFunction, run_to_end
from tunery.ml.score import score_file
from tunery.ml.stop import StopRequest
from tunery.ml.train import train
from tunery.ml.train_and_score import train_and_score
from tunery.work.exits import ExitCode
from tunery.work.warm import BEGUN, WarmModule

WORK: Final[Mapping[WarmModule, WorkFunction]] = {
    "tunery.ml.train": train,
    "tunery.ml.train_and_score": train_and_score,
    "tunery.ml.score": score_file,
}


def main() -> NoReturn:
    """Import, wait, and do what the order says."""
    os.nice(NICENESS)
    share_heap()  # its order may name trainings that take turns
    said = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print while they load
    with large_imports():
        import tunery.ml.fine_tuning
        import tunery.ml.scoring  # noqa: F401  # loaded for what the order will name

    order = read_order()
    if order is None:
        os._exit(ExitCode.ORPHANED)
    stop = StopRequest()
    stop.listen()  # from now on a signal ends the work, as in a process that was started for it
    become(order)
    os.write(said, BEGUN)
    os.dup2(said, sys.stdout.fileno())
    os.close(said)
    run_to_end(WORK[order.module], Path(order.spec), stop)


if __name__ == "__main__":
    main()
