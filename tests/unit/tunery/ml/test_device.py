from pathlib import Path

import pytest
import torch

from tunery.ml import device

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
    assert device.environment(CPU, 1)["threads"] == "1"
    assert device.make_deterministic(None) >= 1
