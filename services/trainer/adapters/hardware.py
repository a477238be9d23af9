"""Detects the accelerators and the memory of this machine."""

import os
import re
import shutil
import subprocess

from services.trainer.ports import Hardware

PROBE_S_MAX = 10
MIB = 1 << 20
MODEL_MAX = 32  # characters, as in the settings


def probe() -> Hardware:
    """Accelerators as the driver's own tool tells them, without loading a tensor library."""
    tool = shutil.which("nvidia-smi")
    if tool is not None:
        asked = subprocess.run(
            [tool, "--query-gpu=memory.total,name", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=PROBE_S_MAX,
            check=False,
        )
        lines = [line.partition(",") for line in asked.stdout.splitlines()]
        devices = [(int(size), name) for size, _, name in lines if size.strip().isdigit()]
        devices = devices[: _visible_max()]
        if asked.returncode == 0 and devices:
            models = {model_of(name) for _, name in devices}
            model = models.pop() if len(models) == 1 else ""
            return Hardware("cuda", min(devices)[0] * MIB, len(devices), model)
    return Hardware("cpu", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _visible_max() -> int | None:
    """How many devices the agent may use; None: all. The driver's tool lists all of them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if visible is None else len([name for name in visible.split(",") if name.strip()])


def model_of(name: str) -> str:
    """The model as jobs and price books name it: "NVIDIA A100-SXM4-80GB" is "a100-sxm4-80gb"."""
    words = re.sub(r"[^a-z0-9._-]+", "-", name.lower().replace("nvidia", " ")).strip("-._")
    return words[:MODEL_MAX]
