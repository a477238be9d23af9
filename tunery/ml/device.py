"""The processor and its number formats, and settings for reproducible results."""

import importlib.metadata
import os
from pathlib import Path

import torch

from tunery.work.spec import Precision

CPUINFO = Path("/proc/cpuinfo")
BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})
LIBRARIES = ("torch", "transformers", "trl", "peft", "accelerate")


def pick_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def pick_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """bf16 where the hardware multiplies it, else fp32."""
    match precision:
        case "bf16":
            return torch.bfloat16
        case "fp32":
            return torch.float32
        case "auto" if device.type == "cuda":
            return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
        case "auto":
            return torch.bfloat16 if cpu_flags() & BF16_FLAGS else torch.float32


def cpu_flags(cpuinfo: Path = CPUINFO) -> frozenset[str]:
    """Feature flags of the first processor; empty if the kernel does not list them."""
    flags = next(iter(_values(cpuinfo, "flags")), "")
    return frozenset(flags.split())


def physical_cores(cpuinfo: Path = CPUINFO) -> int:
    """Number of cores without hyper-threads; 0 if the kernel does not list them."""
    pairs = zip(_values(cpuinfo, "physical id"), _values(cpuinfo, "core id"), strict=False)
    return len(set(pairs))


def _values(cpuinfo: Path, field: str) -> list[str]:
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    split = (line.partition(":") for line in lines)
    return [value.strip() for name, _, value in split if name.strip() == field]


def make_deterministic(threads: int | None) -> int:
    """Fix the number of threads and use deterministic kernels: results are equal bit for bit."""
    allowed = len(os.sched_getaffinity(0))
    count = threads or min(allowed, physical_cores() or allowed)
    torch.set_num_threads(count)
    torch.use_deterministic_algorithms(True, warn_only=torch.cuda.is_available())
    # Clearing memory that is written anyway costs 2 % of a step and changes no result of ours.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # made at import
    return count


def environment(device: torch.device, threads: int) -> dict[str, str]:
    """Facts that must be equal for a resume to be equal to the bit."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    versions = {library: importlib.metadata.version(library) for library in LIBRARIES}
    return {"device": name, "threads": str(threads), **versions}
