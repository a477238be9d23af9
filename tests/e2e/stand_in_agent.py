"""The node agent of production, whose training and scoring processes are stand-ins without torch.

    python -m tests.e2e.stand_in_agent

Everything else is real: leases, processes, signals, checkpoints and blobs, and also what confines
processes, which lets them read the code of tests besides.
"""

import os
from pathlib import Path

from services.trainer.app import build
from services.trainer.effect.evaluation import Evaluation
from services.trainer.effect.training import Training
from services.trainer.settings import STOP_MS_MAX
from tests.e2e import stand_in_process
from tunery.platform.process import main

if __name__ == "__main__":
    Training.module = Evaluation.module = stand_in_process.__name__
    os.environ["TUNERY_CONFINE_READ"] = str(Path(stand_in_process.__file__).parents[1])
    main("trainer", build, stop_ms_max=STOP_MS_MAX)
