"""The table of kernels by device."""

from pathlib import Path

import pytest
import torch

from tunery.ml.kernels import GPUS, PROCESSOR, kernels_of, unmeasured

pytestmark = pytest.mark.train
GPU = torch.device("cuda", 0)
ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("capability", "row"),
    [((7, 5), (0, 0)), ((8, 0), (8, 0)), ((8, 9), (8, 0)), ((9, 0), (9, 0)), ((12, 1), (10, 0))],
)
def test_a_gpu_has_the_row_of_the_largest_capability_up_to_its_own(
    capability: tuple[int, int], row: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA B200")
    assert kernels_of(GPU) is GPUS[row]
    said = ["the fastest kernels on NVIDIA B200 were not measured: see bench.gpu"]
    assert unmeasured(GPU) == ([] if row == (9, 0) else said)


def test_a_row_that_was_measured_says_where() -> None:
    assert unmeasured(torch.device("cpu")) == []
    for row in (PROCESSOR, *GPUS.values()):
        if row.measured:
            assert (ROOT / row.measured.rsplit(maxsplit=1)[-1]).exists()
