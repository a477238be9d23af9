"""Detection of accelerators, with and without the driver's tool."""

from pathlib import Path

import pytest

from services.trainer.adapters.hardware import MIB, probe


def driver(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")


def test_the_smallest_accelerator_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver(
        tmp_path,
        monkeypatch,
        "echo 81920, NVIDIA A100-SXM4-80GB; echo 40960, NVIDIA A100-SXM4-40GB",
    )
    hardware = probe()
    assert (hardware.device, hardware.memory_bytes) == ("cuda", 40_960 * MIB)
    assert (hardware.devices, hardware.accelerator) == (2, "")


@pytest.mark.parametrize(("visible", "devices"), [("2,3", 2), ("1", 1), ("", 0)])
def test_only_devices_that_the_agent_may_use_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str, devices: int
) -> None:
    driver(tmp_path, monkeypatch, "for _ in 1 2 3 4; do echo 81920, NVIDIA H200; done")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    hardware = probe()
    assert (hardware.devices, hardware.device) == (devices, "cuda" if devices else "cpu")


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("Tesla V100-SXM2-16GB", "tesla-v100-sxm2-16gb"),
        ("NVIDIA RTX 6000 Ada Generation of the year", "rtx-6000-ada-generation-of-the-y"),
    ],
)
def test_the_driver_says_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, model: str
) -> None:
    driver(tmp_path, monkeypatch, f"echo '81920, {name}'; echo '81920, {name}'")
    assert probe().accelerator == model


@pytest.mark.parametrize("script", ["echo failed; exit 9", "exit 0"])
def test_without_a_working_driver_it_is_a_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    driver(tmp_path, monkeypatch, script)
    hardware = probe()
    assert hardware.device == "cpu"
    assert hardware.memory_bytes > 1 << 28
