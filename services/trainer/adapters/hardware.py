"""Detects the accelerators and the memory of this machine."""

import logging
import os
import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from services.trainer.adapters.nvml import (
    FIRST_S_MAX,
    NvidiaDevice,
    interconnect_of,
    list_devices,
    within,
)
from services.trainer.ports import Hardware
from tunery.ranks.launching import VISIBLE
from tunery.runtime.telemetry.logs import log_event

MODEL_MAX: Final = 32  # characters, as in the settings
LOG: Final = logging.getLogger(__name__)


def probe() -> Hardware:
    """Accelerators from the driver, without loading a tensor library.

    Raises TimeoutError when the driver hangs.
    """
    return within(FIRST_S_MAX, _probe)


def _probe() -> Hardware:
    devices = _alike(_visible(list_devices(), os.environ.get(VISIBLE)))
    if not devices:
        return Hardware("cpu", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    names = tuple(device.name for device in devices)
    return Hardware(
        "cuda",
        devices[0].memory_bytes,
        device_names=names,
        accelerator=model_of(devices[0].model),
        interconnect=interconnect_of(names),
    )


def _alike(devices: Sequence[NvidiaDevice]) -> Sequence[NvidiaDevice]:
    """Return the largest group of identical devices (model and memory); on a tie, with more memory.

    A node has one size of slot, one model, and one price; and the ranks of a training wait for the
    slowest one, and round as their devices do. Another agent of this machine may use the others.
    """
    counts = Counter((device.memory_bytes, device.model) for device in devices)
    if len(counts) < 2:
        return devices
    most = max(counts, key=lambda kind: (counts[kind], *kind))
    alike = [device for device in devices if (device.memory_bytes, device.model) == most]
    others = ",".join(device.name for device in devices if device not in alike)
    log_event(
        LOG,
        logging.WARNING,
        "node.devices_differ",
        model=most[1],
        used=len(alike),
        unused=others,
        fix=f"start another agent with its own TUNERY_NODE_ID and {VISIBLE}={others}",
    )
    return alike


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
