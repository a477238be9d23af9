from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.unit.tunery.ml.runs import a_run
from tests.unit.tunery.ml.trainings import HYPER

pytestmark = pytest.mark.train


def test_a_run_stops_early_once_its_patience_is_used_up(tmp_path: Path) -> None:
    run = a_run(tmp_path, replace(HYPER, early_stopping_patience=2))
    stopped = []
    for step, loss in enumerate((3.0, 3.1, 3.2)):
        run.evaluations = run.evaluations.add(step, loss)
        stopped.append(run.has_stopped_early)
    assert stopped == [False, False, True]
