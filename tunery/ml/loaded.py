"""The work of a lease, in a fork of a process that has loaded the libraries of all work.

For `tunery.confinement.fork_server`. To load them takes five seconds of processor time, a fork
takes none, and forks share the memory of what is loaded. This process knows nothing of any tenant,
and has not spoken to the driver of an accelerator, whose state would not survive a fork. It does
without bitsandbytes, which looks for one while it loads: work that quantises starts anew.
"""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

from setproctitle import setproctitle

from tunery.confinement.policy import ACCELERATORS
from tunery.ml.imports import large_imports
from tunery.ml.inputs import read_score_spec, read_training
from tunery.ml.process import (
    NICENESS,
    WorkFunction,
    leave_out_bitsandbytes,
    needs_bitsandbytes,
    run_to_end,
)
from tunery.ml.score import score_file
from tunery.ml.stop import StopRequest
from tunery.ml.train import train
from tunery.ml.train_and_score import train_and_score
from tunery.work.exits import WorkError
from tunery.work.orders import SCORE, WorkModule

ASKS_NVML: Final = "PYTORCH_NVML_BASED_CUDA_CHECK"
DRIVERS: Final = tuple(f"/dev/{name.rstrip('*')}" for name in ACCELERATORS)
WORK: Final[Mapping[WorkModule, WorkFunction]] = {
    "tunery.ml.train": train,
    "tunery.ml.train_and_score": train_and_score,
    "tunery.ml.score": score_file,
}


def warm(descriptors: Path) -> None:
    """Load the libraries. Raises RuntimeError where one of them has opened a driver.

    descriptors: see `drivers_in`
    """
    os.nice(NICENESS)
    setproctitle(f"{sys.executable} -m {__name__}")  # the first call finds where the name is
    leave_out_bitsandbytes()
    os.environ[ASKS_NVML] = "1"  # asks for devices without the driver's own state
    with large_imports():
        import tunery.ml.engines.fsdp2
        import tunery.ml.fine_tuning
        import tunery.ml.scoring  # noqa: F401  # loaded for its forks

    del os.environ[ASKS_NVML]  # a fork may ask the driver itself

    if opened := drivers_in(descriptors):
        raise RuntimeError(f"{', '.join(opened)} was opened; a fork could not use it")


def drivers_in(descriptors: Path) -> list[str]:
    """Return the drivers of accelerators among descriptors of a process, a folder of /proc."""
    opened = []
    for descriptor in descriptors.iterdir():
        try:
            target = str(descriptor.readlink())
        except OSError:  # the one by which the folder is read
            continue
        if target.startswith(DRIVERS):
            opened.append(target)
    return sorted(opened)


def run(module: WorkModule, spec: str, folder: str) -> NoReturn:
    """Do the work on a spec in a folder, and leave with its exit code. Raises OSError."""
    stop = StopRequest()
    stop.listen()
    os.chdir(folder)
    tempfile.tempdir = None  # the one of the lease, which the environment names
    if quantises(module, Path(spec)):
        os.execv(sys.executable, (sys.executable, "-m", module, spec))  # noqa: S606  # no shell
    rank = f" (rank {os.environ['RANK']})" if "RANK" in os.environ else ""
    setproctitle(f"{sys.executable} -m {module}{rank} {spec}")
    run_to_end(WORK[module], Path(spec), stop)


def quantises(module: WorkModule, path: Path) -> bool:
    """Return whether the work on a spec needs bitsandbytes; the work itself refuses a bad spec."""
    try:
        if module == SCORE:
            return read_score_spec(path).adaptation == "qlora"
        return needs_bitsandbytes(read_training(path))
    except WorkError:
        return False
