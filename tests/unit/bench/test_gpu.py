"""GPU benchmark: reading NCCL's log, a part that fails, a machine without a GPU."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from bench import gpu

LOG = """
node:1:1 [0] NCCL INFO Bootstrap: Using lo:127.0.0.1<0>
node:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] via P2P/CUMEM
node:1:1 [0] NCCL INFO Channel 01/0 : 1[0] -> 0[0] via SHM/direct/direct
"""


def test_the_log_of_nccl_names_transports_and_interfaces() -> None:
    said = gpu.of_log(LOG)
    assert said == {"transports": ["P2P/CUMEM", "SHM/direct/direct"], "interfaces": ["lo"]}


def test_a_part_that_fails_and_one_without_time_say_so_and_the_others_go_on() -> None:
    seconds = iter([0.0, 1.0, 2.0, 11.0])
    measurement = gpu.Measurement(10, clock=lambda: next(seconds))

    def fails(left_s: float) -> Mapping[str, Any]:
        raise RuntimeError(f"{left_s} s were left")

    measurement.part("one", fails)
    measurement.part("two", lambda left_s: {"left_s": left_s})
    measurement.part("three", lambda left_s: {"left_s": left_s})
    assert measurement.figures == {
        "one": "failed: RuntimeError: 9.0 s were left",
        "two_left_s": 8.0,
        "three": "not run: the 10 s are over",
    }


def test_without_a_gpu_it_says_that_it_was_not_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu, "devices_here", list)
    monkeypatch.setattr("sys.argv", ["gpu", "--json"])
    gpu.main()
    assert json.loads(capsys.readouterr().out) == {"gpu": "not run: this machine has 0 GPUs"}
