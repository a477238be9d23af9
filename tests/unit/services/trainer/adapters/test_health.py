"""Slots that get no leases: those of faulty devices, and all while the disk is full."""

import shutil
from pathlib import Path

import pytest

from services.trainer.adapters.health import MachineHealth
from services.trainer.adapters.nvml import DeviceWatch
from tests.unit.services.trainer.adapters.eight_devices import EightDevices


def test_devices_that_are_no_slots_have_no_faults(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = EightDevices().install(monkeypatch)
    driver.states[1].errors = driver.states[6].errors = 1
    devices = DeviceWatch([state.name for state in driver.states])
    devices.look()
    devices._read_at = devices.clock()
    faults = MachineHealth(4, tmp_path, 0, devices).faults()
    assert [(fault.device, fault.reason.code) for fault in faults] == [(1, "ecc")]


def test_a_full_disk_is_a_fault_of_each_slot_until_there_is_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    free = {"bytes": 1_000}

    class Usage:
        def __init__(self, _: object) -> None:
            self.free = free["bytes"]

    monkeypatch.setattr(shutil, "disk_usage", Usage)
    machine = MachineHealth(2, tmp_path, 1_000)
    assert machine.faults() == ()
    free["bytes"] = 999
    faults = machine.faults()
    assert [(fault.device, fault.reason.code) for fault in faults] == [
        (0, "disk_full"),
        (1, "disk_full"),
    ]
    free["bytes"] = 1_249
    assert machine.faults() == faults, "a file more or less is no news for the log"
    free["bytes"] = 1_250
    assert machine.faults() == ()


def test_a_disk_that_is_gone_is_full(tmp_path: Path) -> None:
    assert MachineHealth(1, tmp_path / "gone", 1).faults()
