"""Devices of a machine as the driver's library reports them, and none without a driver."""

import pytest

from services.trainer.adapters.hardware import model_of, probe
from tests.log_lines import logged
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


@pytest.mark.parametrize(
    ("others", "used"),
    [({0: 40}, [1, 2, 3]), ({0: 40, 1: 40}, [2, 3]), ({1: 180, 3: 180}, [1, 3])],
)
def test_devices_of_a_node_are_of_one_model_and_memory(
    others: dict[int, int], used: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The most of them, then the largest; the log says how another agent gets the others."""
    driver = EightDevices(count=4).install(monkeypatch)
    for at, memory in others.items():
        driver.states[at].model, driver.states[at].memory_bytes = f"NVIDIA A{memory}", memory * GIB
    with logged() as lines:
        hardware = probe()
    assert hardware.device_names == tuple(driver.states[at].name for at in used)
    assert hardware.memory_bytes == driver.states[used[0]].memory_bytes
    assert hardware.accelerator == model_of(driver.states[used[0]].model)
    (line,) = lines.of("node.devices_differ")
    unused = ",".join(state.name for at, state in enumerate(driver.states) if at not in used)
    assert line["fix"].endswith(f"its own TUNERY_NODE_ID and CUDA_VISIBLE_DEVICES={unused}")


def test_devices_of_one_model_with_other_memory_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = EightDevices(count=3).install(monkeypatch)
    driver.states[1].memory_bytes = 130 * GIB
    assert len(probe().device_names) == 2


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
