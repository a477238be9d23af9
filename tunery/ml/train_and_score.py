"""Train an adapter, then score it in the same process, once the agent names the evaluation.

    python -m tunery.ml.train_and_score SPEC.json

Trains as `tunery.ml.train` does. A training that does not finish leaves as it does there. One that
has finished frees all but its libraries and the weights of the base model, writes `ENDED`, and
waits for a `tunery.work.orders.Order` on standard input. Then it writes `BEGUN`, scores as
`tunery.ml.score` does, and leaves with the exit code of that. Without an order within `WAIT_S`, or
without its agent, it leaves.
"""

import gc
import os
import select
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

from tunery.ml.events import EventWriter
from tunery.ml.free_memory import return_freed
from tunery.ml.imports import large_imports
from tunery.ml.inputs import read_score_spec
from tunery.ml.process import code_of, main
from tunery.ml.score import score_file
from tunery.ml.stop import StopRequest
from tunery.ml.train import train
from tunery.work.exits import ExitCode
from tunery.work.orders import BEGUN, ENDED, WAIT_S, Order, decode_order

# The order that a process that has trained reads from its standard input.

OWN_FOLDERS: Final = ("HOME", "TMPDIR", "XDG_CACHE_HOME")


def read_order(wait_s: float | None = None) -> Order | None:
    """Wait for the order; None when the agent is gone, or none has come in that time.

    Raises msgspec.MsgspecError.
    """
    if not select.select([sys.stdin], [], [], wait_s)[0]:
        return None
    line = sys.stdin.buffer.readline()
    return decode_order(line) if line else None


def become(order: Order) -> None:
    """Take the place in the file system that the order names. Raises OSError."""
    os.chdir(order.folder)
    for name in OWN_FOLDERS:  # below the folder that it has waited in, which is that folder now
        if name in os.environ:
            os.environ[name] = str(Path(order.folder) / Path(os.environ[name]).name)
    tempfile.tempdir = None
    with Path(os.devnull).open("rb") as no_input:
        os.dup2(no_input.fileno(), sys.stdin.fileno())


class KeptBase:
    """Loads a base model once, for a training and for the evaluation of its job.

    Only with adapters on weights that nothing changes or moves; others load the base themselves.
    """

    def __init__(self) -> None:
        self._key: Any = None
        self._load: Any = None

    def __call__(self, folder: str, dtype: Any, torch_device: Any, *, four_bits: bool) -> Any:
        """Load as `tunery.ml.model.load_base`; the last base is kept, and no other."""
        from tunery.ml.colocated import CommonBase  # imports torch

        key = (folder, dtype, torch_device, four_bits)
        if key != self._key:
            self._key, self._load = key, CommonBase()
        return self._load(folder, dtype, torch_device, four_bits=four_bits)


def train_and_score(
    path: Path, events: EventWriter, stop: StopRequest, *, alone: bool = False
) -> ExitCode:
    """Train on a spec file, then score by an order. Raises WorkError when the run cannot go on.

    alone: the process does nothing else, before or after
    """
    base = KeptBase()
    code = train(path, events, stop, alone=alone, load=base)
    if code != ExitCode.FINISHED:
        return code
    _free()
    for number in (signal.SIGTERM, signal.SIGINT):  # nothing is left to be saved
        signal.signal(number, signal.SIG_DFL)
    events.forward(ENDED)
    with large_imports():  # while the agent stores the result
        import tunery.ml.scoring  # noqa: F401  # loaded for the order
    order = read_order(WAIT_S)
    if order is None:
        return code
    stop = StopRequest()
    stop.listen()
    become(order)
    events.forward(BEGUN)
    events = EventWriter(events.stream, time.monotonic())
    return code_of(lambda: _score(Path(order.spec), events, stop, base), events)


def _score(path: Path, events: EventWriter, stop: StopRequest, base: KeptBase) -> ExitCode:
    keeps = read_score_spec(path).adaptation == "lora"
    return score_file(path, events, stop, load=base if keeps else None)


def _free() -> None:
    """Give back the memory of a training, whose parts refer to each other."""
    gc.collect()
    return_freed()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main("tunery.ml.train_and_score", partial(train_and_score, alone=True))
