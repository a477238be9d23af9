"""Detects the accelerators and the memory of this machine."""

import os
import re
from collections.abc import Sequence

from services.trainer.adapters.nvml import (
    FIRST_S_MAX,
    NvidiaDevice,
    interconnect_of,
    list_devices,
    within,
)
from services.trainer.ports import VISIBLE, Hardware

MODEL_MAX = 32  # characters, as in the settings


def probe() -> Hardware:
    """Accelerators as the driver tells them, without loading a tensor library.

    Raises TimeoutError when the driver hangs.
    """
    return within(FIRST_S_MAX, _probe)


def _probe() -> Hardware:
    devices = _visible(list_devices(), os.environ.get(VISIBLE))
    if not devices:
        return Hardware("cpu", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    models = {model_of(device.model) for device in devices}
    names = tuple(device.name for device in devices)
    return Hardware(
        "cuda",
        min(device.memory_bytes for device in devices),
        device_names=names,
        accelerator=models.pop() if len(models) == 1 else "",
        interconnect=interconnect_of(names),
    )


def _visible(devices: Sequence[NvidiaDevice], asked: str | None) -> Sequence[NvidiaDevice]:
    """The devices that the agent may use, in the order in which its environment names them.

    As CUDA does it: by number, or by the beginning of a name, up to the first that there is not.
    """
    if asked is None:
        return devices
    visible: list[NvidiaDevice] = []
    for name in asked.split(","):
        device = _device_of(devices, name.strip())
        if device is None or device in visible:
            break
        visible.append(device)
    return visible


def _device_of(devices: Sequence[NvidiaDevice], name: str) -> NvidiaDevice | None:
    if name.isdecimal():
        return devices[int(name)] if int(name) < len(devices) else None
    named = [device for device in devices if name and device.name.startswith(name)]
    return named[0] if len(named) == 1 else None


def model_of(name: str) -> str:
    """The model as jobs and price books name it: "NVIDIA A100-SXM4-80GB" is "a100-sxm4-80gb"."""
    words = re.sub(r"[^a-z0-9._-]+", "-", name.lower().replace("nvidia", " ")).strip("-._")
    return words[:MODEL_MAX]
