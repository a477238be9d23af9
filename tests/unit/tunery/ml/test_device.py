import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tunery.ml import device
from tunery.work.exits import WorkError

pytestmark = pytest.mark.train
CPU = torch.device("cpu")
CPUINFO = """processor : 0
physical id : 0
core id\t\t: 0
flags\t\t: fpu sse2 avx512_bf16

processor : 1
physical id : 0
core id\t\t: 0
flags\t\t: fpu sse2 avx512_bf16

processor : 2
physical id : 0
core id\t\t: 1
flags\t\t: fpu sse2 avx512_bf16
"""


def test_cores_are_counted_once(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(CPUINFO)
    assert device.physical_cores(path) == 2
    assert device.cpu_flags(path) == {"fpu", "sse2", "avx512_bf16"}


def test_a_kernel_without_cpuinfo_is_no_error(tmp_path: Path) -> None:
    assert device.physical_cores(tmp_path / "none") == 0
    assert device.cpu_flags(tmp_path / "none") == frozenset()


def test_training_m7_a_process_that_sees_other_devices_than_its_lease_has_does_not_begin() -> None:
    """Finding M7; without the check it would train on a processor, billed as a device."""
    seen = torch.cuda.device_count()
    assert device.pick_device(seen) == device.pick_device()
    with pytest.raises(WorkError, match=f"the lease has 7 accelerators.*sees {seen}") as caught:
        device.pick_device(7)
    assert caught.value.cause == "bad_node"


def test_devices_are_those_that_a_process_was_meant_to_see(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another program than the agent starts it."""
    with pytest.raises(
        WorkError, match="is to work on the accelerator GPU-a, and does not see it as"
    ):
        device.pick_device(name="GPU-a")  # there is none, or another one
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(device, "uuid_of", lambda _: "GPU-b")
    with pytest.raises(WorkError, match="does not see it as number 0") as caught:
        device.pick_device(1, "GPU-a")
    assert caught.value.cause == "bad_node"
    device.pick_device(1, "GPU-b")
    device.pick_device(1, "3")  # a number says which device it is only where all are seen


def test_devices_are_one_for_each_process_and_batches_are_never_shared_among_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Finding M7: transformers wraps a model in DataParallel for all devices that it sees."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for accelerators in (2, None):
        with pytest.raises(WorkError, match="works on one accelerator, and this one sees 2"):
            device.pick_device(accelerators)


def test_the_peak_of_memory_only_grows() -> None:
    before = device.peak_memory_bytes(CPU)
    block = torch.ones(before // 4)  # as much as the process has had
    after = device.peak_memory_bytes(CPU)
    del block
    assert after > before > 0
    assert device.peak_memory_bytes(CPU) == pytest.approx(after, rel=0.01)  # as exact as the kernel


@pytest.mark.parametrize(
    ("flags", "expected"),
    [({"avx2"}, torch.float32), ({"amx_bf16"}, torch.bfloat16), ({"avx512_bf16"}, torch.bfloat16)],
)
def test_auto_is_bf16_where_the_hardware_has_it(
    monkeypatch: pytest.MonkeyPatch, flags: set[str], expected: torch.dtype
) -> None:
    monkeypatch.setattr(device, "cpu_flags", lambda: frozenset(flags))
    assert device.pick_dtype("auto", CPU) == expected
    assert device.pick_dtype("fp32", CPU) == torch.float32
    assert device.pick_dtype("bf16", CPU) == torch.bfloat16


def test_threads_are_those_asked_for() -> None:
    assert device.make_deterministic(1) == torch.get_num_threads() == 1
    assert device.environment(CPU, 1, 4)["threads"] == "1"
    assert device.make_deterministic(None) >= 1
    assert device.make_deterministic(None, ranks=10_000) == 1


def test_training_m10_other_instructions_are_another_environment() -> None:
    """Finding M10: a resume on an older processor gave other bytes, without a warning."""
    code = (
        "import json, torch; from tunery.ml import device;"
        "print(json.dumps(device.environment(torch.device('cpu'), 1, 1)))"
    )
    environments = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", code],
                env={**os.environ, **limits},
                capture_output=True,
                check=True,
            ).stdout
        )
        for limits in ({"ATEN_CPU_CAPABILITY": "default"}, {}, {"ONEDNN_MAX_CPU_ISA": "AVX2"})
    ]
    held_back, here, limited = environments
    assert (held_back["instructions"], here["instructions_max"]) == ("DEFAULT", "")
    assert held_back["instructions"] != here["instructions"]
    assert limited["instructions_max"] == "AVX2"
    assert {"numpy", "safetensors", "torch", "micro_batch", "arithmetic"} <= here.keys()


@pytest.mark.parametrize("kept", [0, 400])
def test_first_hour2_u14_the_base_of_a_training_before_takes_no_memory_from_its_evaluation(
    kept: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A device of 500 bytes, to score with a base of 400, in the process that has it or another."""
    (tmp_path / "model.safetensors").write_bytes(bytes(400))
    monkeypatch.setattr(device, "free_memory", lambda _: 500 - kept)
    monkeypatch.setattr(device, "memory_in_use", lambda _: kept)
    assert not device.outgrows(tmp_path, torch.device("cuda"))
    assert device.outgrows(tmp_path, torch.device("cuda"), sides=2)
    assert not device.outgrows(tmp_path, CPU, sides=2)
