"""The processor and its number formats, and settings for reproducible results."""

import importlib.metadata
import os
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import torch

from schemas.training import Precision
from tunery.ml.free_memory import free_bytes
from tunery.work.exits import WorkError

CPUINFO = Path("/proc/cpuinfo")
BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})
LIBRARIES = ("torch", "transformers", "trl", "peft", "accelerate", "numpy", "safetensors")
QUANTISING = "bitsandbytes"
UUID_PREFIX = "GPU-"  # of the driver's names of devices; others are their numbers
SCORING = 1.25  # of the memory of a base: what scoring with it needs
ISA_LIMITS = ("ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")  # how libraries are held back
# Rises with what a training computes: 2, gradients are added and clipped in fp32; 3, documents of a
# packed row attend each by itself; 4, on accelerators as well, and what an adapter adds to a layer
# is scaled and added by the product itself.
ARITHMETIC_VERSION = 4


def pick_device(
    accelerators: int | None = None, name: str = "", local_rank: int | None = None
) -> torch.device:
    """The accelerator, if there is one, else the processor.

    accelerators: how many the process must see, by its lease; None: it has none
    name: the driver's name of the one that it works on; empty: it is not checked
    local_rank: index of the device that this process sees; None: it must see only one, as
      transformers would share its batches among all that it sees (DataParallel)

    Raises WorkError("bad_node") when it sees fewer, more, or another one, and ("platform") for
    several.
    """
    seen = torch.cuda.device_count()
    if accelerators is not None and seen != accelerators:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        raise WorkError(
            "bad_node",
            f"the lease has {accelerators} accelerators, and the process sees {seen} "
            f"(CUDA_VISIBLE_DEVICES={visible})",
            "Compare nvidia-smi with TUNERY_NODE_SLOTS, and check the driver of the node.",
        )
    if seen > 1 and local_rank is None:
        raise WorkError(
            "platform",
            f"a process works on one accelerator, and this one sees {seen}",
            "Name one of them in CUDA_VISIBLE_DEVICES.",
        )
    index = (local_rank or 0) if seen > 1 else 0
    if name:
        _check_name(seen, index, name)
    if not seen or not torch.cuda.is_available():
        return torch.device("cpu")
    if seen == 1:
        return torch.device("cuda")
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def _check_name(seen: int, index: int, name: str) -> None:
    """Raises WorkError("bad_node") unless the accelerator of the process has this name."""
    is_same = index < seen
    if is_same and name.startswith(UUID_PREFIX):
        is_same = uuid_of(torch.device("cuda", index)).lower() == name.lower()
    if not is_same:
        raise WorkError(
            "bad_node",
            f"the process is to work on the accelerator {name}, and does not see it as number "
            f"{index} (CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES')})",
            "Compare it with nvidia-smi -L, and check the driver of the node.",
        )


def uuid_of(accelerator: torch.device) -> str:
    """The driver's name of an accelerator: `nvidia-smi -L` lists it."""
    return f"{UUID_PREFIX}{torch.cuda.get_device_properties(accelerator).uuid}"


def pick_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """The type of weights. "auto": bf16 where the hardware multiplies it, else fp32."""
    match precision:
        case "bf16" | "fp8":
            return torch.bfloat16
        case "fp32":
            return torch.float32
        case "auto" if device.type == "cuda":
            return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
        case "auto":
            return torch.bfloat16 if cpu_flags() & BF16_FLAGS else torch.float32


def precision_on(device: torch.device, precision: Precision) -> Precision:
    """The precision that "auto" means on a device; any other is what it is."""
    if precision != "auto":
        return precision
    return "bf16" if pick_dtype(precision, device) == torch.bfloat16 else "fp32"


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


def make_deterministic(threads: int | None, ranks: int = 1) -> int:
    """Fix the number of threads and use deterministic kernels: results are equal bit for bit.

    threads: None: this process and the other ranks share all cores
    """
    allowed = len(os.sched_getaffinity(0))
    count = threads or max(1, min(allowed, physical_cores() or allowed) // ranks)
    torch.set_num_threads(count)
    torch.use_deterministic_algorithms(True, warn_only=torch.cuda.is_available())
    # Clearing memory that is written anyway costs 2 % of a step and changes no result of ours.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # made at import
    return count


def settle() -> None:
    """Wait until an accelerator, which works asynchronously, has finished."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch
        torch.cuda.synchronize()


def peak_memory_bytes(device: torch.device) -> int:
    """Peak memory of this process; on an accelerator that of the device."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device)
    # On Linux, `ru_maxrss` counts what the process that started this one had resident.
    kib = _values(Path("/proc/self/status"), "VmHWM")
    return 1024 * (int(kib[0].split()[0]) if kib else getrusage(RUSAGE_SELF).ru_maxrss)


def memory_in_use(device: torch.device) -> int:
    """Return the bytes that this process uses: reserved on an accelerator, else resident."""
    if device.type == "cuda":
        return torch.cuda.memory_reserved(device)
    kib = _values(Path("/proc/self/status"), "VmRSS")
    return 1024 * int(kib[0].split()[0]) if kib else 0


def free_memory(device: torch.device) -> int:
    """Return the bytes that are free: on the accelerator, or for this process on the machine."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_bytes()


def outgrows(folder: Path, device: torch.device, sides: int = 1) -> bool:
    """Return whether an accelerator lacks the memory to score with `sides` models of this size.

    Memory that this process uses there counts as free: a former training's base is reused.
    """
    if device.type != "cuda":
        return False
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    return sides * SCORING * size > free_memory(device) + memory_in_use(device)


def environment(
    device: torch.device, threads: int, micro_batch: int, *, bitsandbytes: bool = False
) -> dict[str, str]:
    """Facts that must be equal for a resume to be equal to the bit.

    micro_batch: packed rows of one; sums of other parts differ in their last bits
    bitsandbytes: whether it quantises the base, or the moments of the optimizer
    """
    libraries = (*LIBRARIES, *((QUANTISING,) if bitsandbytes else ()))
    versions = {library: importlib.metadata.version(library) for library in libraries}
    return {
        "device": "cpu",
        "threads": str(threads),
        "micro_batch": str(micro_batch),
        "arithmetic": str(ARITHMETIC_VERSION),
        # kernels are chosen by it: other instructions round elsewhere
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "instructions_max": " ".join(os.environ.get(name, "") for name in ISA_LIMITS).strip(),
        **versions,
        **(_cuda(device) if device.type == "cuda" else {}),
    }


def _cuda(device: torch.device) -> dict[str, str]:
    """The accelerator, and what chooses its kernels."""
    return {
        "device": torch.cuda.get_device_name(device),
        "compute_capability": ".".join(map(str, torch.cuda.get_device_capability(device))),
        "cuda": str(torch.version.cuda),
        "adamw": "fused",
        "liger": importlib.metadata.version("liger-kernel"),
        "cudnn": str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]  # torch
    }
