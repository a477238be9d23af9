"""What a machine has: devices as the driver's library says them, and none without a driver."""

import pytest

from services.trainer.adapters.hardware import model_of, probe
from tests.unit.services.trainer.adapters.eight_devices import GIB, EightDevices


def test_devices_are_probed_with_count_memory_model_and_interconnect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = EightDevices().install(monkeypatch)
    hardware = probe()
    assert (hardware.device, hardware.memory_bytes) == ("cuda", 141 * GIB)
    assert (hardware.accelerator, hardware.interconnect) == ("h200", "nvlink")
    assert hardware.device_names == tuple(state.name for state in driver.states)


@pytest.mark.parametrize(("links", "way"), [(set(), "pcie"), ({(0, 1), (2, 3)}, "mixed")])
def test_devices_are_connected_as_well_as_each_pair_is(
    links: set[tuple[int, int]], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    EightDevices(links=links).install(monkeypatch)
    assert probe().interconnect == way


def test_bad_input_devices_that_differ_count_as_the_smallest_and_are_of_no_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = EightDevices(count=2).install(monkeypatch)
    driver.states[1].model, driver.states[1].memory_bytes = "NVIDIA A100-SXM4-40GB", 40 * GIB
    hardware = probe()
    assert (hardware.memory_bytes, hardware.accelerator) == (40 * GIB, "")


@pytest.mark.parametrize(
    ("visible", "numbers"),
    [
        ("2,3", [2, 3]),
        ("7, 0", [7, 0]),
        ("GPU-00000005,1", [5, 1]),
        ("1,9,2", [1]),  # CUDA stops at the first that there is not
        ("GPU-0000000", []),  # of several
        ("", []),
    ],
)
def test_devices_are_those_that_the_agent_may_use_in_its_order(
    visible: str, numbers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = EightDevices().install(monkeypatch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    hardware = probe()
    assert hardware.device_names == tuple(driver.states[at].name for at in numbers)
    assert hardware.device == ("cuda" if numbers else "cpu")


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("Tesla V100-SXM2-16GB", "tesla-v100-sxm2-16gb"),
        ("NVIDIA RTX 6000 Ada Generation of the year", "rtx-6000-ada-generation-of-the-y"),
    ],
)
def test_the_driver_says_the_model(name: str, model: str) -> None:
    assert model_of(name) == model


def test_without_a_device_it_is_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    EightDevices(count=0).install(monkeypatch)
    hardware = probe()
    assert (hardware.device, hardware.device_names) == ("cpu", ())
    assert hardware.memory_bytes > 1 << 28
