"""The entry of a training process: what it reads before torch is loaded."""

import io
import json
import signal
import time
from pathlib import Path

import msgspec
import pytest

from tests.unit.tunery.ml.test_inputs import written
from tunery.ml.events import EventWriter
from tunery.ml.stop import StopRequest
from tunery.ml.train import train
from tunery.work.exits import ExitCode, WorkError
from tunery.work.spec import TrainSpec


def test_a_spec_out_of_range_is_refused_by_name(tmp_path: Path) -> None:
    path = written(tmp_path, hyper={"rank": 0})
    with pytest.raises(WorkError, match=r"hyper\.rank is 0"):
        train(path, EventWriter(io.BytesIO(), time.monotonic()), StopRequest())


@pytest.mark.train
def test_a_spec_without_a_base_model_names_its_folder(tmp_path: Path) -> None:
    path = written(tmp_path, base_dir=str(tmp_path / "nowhere"), out_dir=str(tmp_path / "out"))
    with pytest.raises(WorkError, match="nowhere"):
        train(path, EventWriter(io.BytesIO(), time.monotonic()), StopRequest())


@pytest.mark.train
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
def test_a_training_asked_to_stop_leaves_before_its_first_step(
    spec: TrainSpec, tmp_path: Path
) -> None:
    path, stream, stop = tmp_path / "spec.json", io.BytesIO(), StopRequest()
    path.write_bytes(msgspec.json.encode(spec))
    stop._on_signal(signal.SIGTERM, None)
    assert train(path, EventWriter(stream, time.monotonic()), stop) == ExitCode.PREEMPTED
    kinds = [json.loads(line)["type"] for line in stream.getvalue().splitlines()]
    assert "step" not in kinds
    assert kinds[-1] == "preempted"
