"""The trainings that are compared, and what is said where there are too few GPUs."""

import pytest
from msgspec.structs import replace

from bench.ranks import Run, of_ranks
from bench.trainer import hyper_parameters
from tests.unit.bench.test_adaptation import SPEC
from tests.unit.tunery.ranks.test_group import STEP
from tunery.work.spec import Engine

HYPER = replace(hyper_parameters(4, "fp32"), batch_size=8)


def test_ranks_share_the_rows_of_a_step() -> None:
    runs = [of_ranks(SPEC, HYPER, devices) for devices in ([""], [""] * 4, ["GPU-a", "GPU-b"])]
    assert [(run.ranks, run.devices, run.threads) for run in runs] == [
        (1, (), 1),
        (4, (), 1),
        (2, ("GPU-a", "GPU-b"), None),
    ]
    assert {run.hyper.batch_size * run.hyper.accumulation for run in runs} == {8}
    assert len({run.out_dir for run in runs}) == 3
    assert [run.engine for run in runs] == [Engine(), Engine(name="fsdp2"), Engine(name="fsdp2")]
    with pytest.raises(ValueError, match="--rows: 8 are too few for 9 ranks"):
        of_ranks(SPEC, HYPER, [""] * 9)


def test_a_first_step_is_not_counted() -> None:
    speeds = (1.0, 100.0, 200.0)
    steps = [replace(STEP, tokens_per_s=speed) for speed in speeds]
    assert Run([*steps], 0, "").tokens_s == 150.0
