"""The process that has loaded the libraries of work, and what its forks become."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from services.trainer.adapters.forks import WorkForks
from services.trainer.adapters.processes import MARK, ProcessGroups, Walls
from services.trainer.effect.environment import environment_on
from services.trainer.ports import Access
from tunery.confinement.confined import Confinement
from tunery.ml.loaded import drivers_in
from tunery.work.codec import encode_spec
from tunery.work.exits import ExitCode
from tunery.work.spec import TrainSpec


@pytest.mark.train
@pytest.mark.parametrize("module", ["tunery.ml.train", "tunery.ml.score"])
async def test_first_hour2_u15_a_fork_is_the_process_that_the_lease_names(
    module: str, tmp_path: Path
) -> None:
    """Its events and its exit code are that process's, without the seconds of its imports."""
    environment = environment_on(())
    forks = WorkForks(environment, tmp_path / "forks", {MARK: str(tmp_path)})
    groups = ProcessGroups(str(tmp_path), forks=forks)
    (lease := tmp_path / "lease").mkdir()
    spec = lease / "spec.json"
    spec.write_text('{"base_dir": "x", "lerning_rate": 1}')
    process = await groups.start((sys.executable, "-m", module, str(spec)), environment, lease)
    (failed,) = [json.loads(line) async for line in process.lines()]
    assert (await process.wait(), failed["cause"]) == (ExitCode.USER, "user")
    assert str(spec) in failed["message"]
    assert failed["elapsed_ms"] < 1_000, "counted from when it began"
    assert forks.server_pid is not None, "its server has no second thread, and goes on"
    assert await groups.sweep() == 0


@pytest.mark.train
@pytest.mark.parametrize(
    "changed", [{}, {"adaptation": "qlora"}, {"optimizer": "adamw_8bit"}], ids=str
)
async def test_a_fork_trains_to_the_bytes_of_a_process_that_started_anew(
    changed: dict[str, Any], spec: TrainSpec, folder_on_disk: Path
) -> None:
    """What quantises needs a library that looks for a driver while it loads: it starts anew."""
    hyper = replace(spec.hyper, max_steps=2, **changed)
    environment = environment_on(())
    forks = WorkForks(environment, folder_on_disk / "forks", {MARK: str(folder_on_disk)})
    hashes = []
    for name, own in (("fork", forks), ("anew", None)):
        groups = ProcessGroups(str(folder_on_disk), Walls(Confinement("require")), own)
        (folder := folder_on_disk / name).mkdir()
        path = folder / "spec.json"
        path.write_bytes(encode_spec(replace(spec, hyper=hyper, out_dir=str(folder / "out"))))
        read = tuple(Path(each).parent for each in (*spec.train_shards, *spec.valid_shards))
        access = Access(read=(Path(spec.base_dir), *read))
        command = (sys.executable, "-m", "tunery.ml.train", str(path))
        process = await groups.start(command, environment, folder, access)
        *_, last = [json.loads(line) async for line in process.lines()]
        assert await process.wait() == ExitCode.FINISHED, process.error_tail()
        hashes.append(last["adapter_sha256"])
    assert hashes[0] == hashes[1]
    assert forks.server_pid is not None
    forks.close()


def test_a_driver_that_a_library_has_opened_is_found(tmp_path: Path) -> None:
    for number, target in enumerate(("/dev/null", "/dev/nvidiactl", "/dev/dri/renderD128")):
        (tmp_path / str(number)).symlink_to(target)
    assert drivers_in(tmp_path) == ["/dev/dri/renderD128", "/dev/nvidiactl"]
    assert drivers_in(Path("/proc") / str(os.getpid()) / "fd") == []
