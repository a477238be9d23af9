"""Environment of the process that works under a lease: its devices, and nothing secret."""

import errno
import os
from collections.abc import Sequence
from typing import Final

from services.trainer.domain.state import Grant
from tunery.ranks.launching import VISIBLE

# What a process may know of its agent's environment. It reads what tenants upload, so all else,
# such as AWS_*, PG*, HF_TOKEN or a proxy with a password, stays with the agent.
INHERITED: Final = frozenset(
    {
        *("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TEMP", "TMP", "TMPDIR", "TZ"),
        *("USER", "VIRTUAL_ENV", "XDG_CACHE_HOME", "LD_LIBRARY_PATH", "LD_PRELOAD", "HF_HOME"),
    }
)
INHERITED_PREFIXES: Final = (
    *("LC_", "PYTHON", "MALLOC_"),
    *("ATEN_", "DNNL_", "GOMP_", "KMP_", "MKL_", "OMP_", "ONEDNN_", "OPENBLAS_"),
    *("CUBLAS_", "CUDA_", "CUDNN_", "NCCL_", "NVIDIA_", "PYTORCH_", "TORCH_", "TRITON_"),
)


def accelerators(grant: Grant) -> int:
    """How many accelerators the lease has on this node; 0: it is one of processors."""
    hardware = grant.lease.hardware
    return len(grant.member.devices) if hardware is not None and hardware.device == "cuda" else 0


def process_environment(grant: Grant, names: Sequence[str]) -> dict[str, str]:
    """The environment of the process that works under a lease.

    names: names of the node's devices, in the order of their numbers
    Raises OSError (ENODEV) when the node has no device of such a number.
    """
    return environment_on(devices_of(grant, names))


def devices_of(grant: Grant, names: Sequence[str]) -> tuple[str, ...]:
    """The names of the accelerators that a lease has on this node; none: it is one of processors.

    names: names of the node's devices, in the order of their numbers
    Raises OSError (ENODEV) when the node has no device of such a number.
    """
    devices = grant.member.devices if accelerators(grant) else ()
    if devices and max(devices) >= len(names):
        text = f"device {max(devices)} of the lease is none of the node's {len(names)}"
        raise OSError(errno.ENODEV, text)
    return tuple(names[device] for device in devices)


def devices_of_ranks(grant: Grant, names: Sequence[str]) -> tuple[str, ...]:
    """The names of the accelerators of all ranks of a lease; none: it is one of processors.

    names: see `devices_of`, also for what is raised

    Devices of other nodes are named by node and number: no rank here sees one.
    """
    own = devices_of(grant, names)
    if not own or len(grant.members) < 2:
        return own
    every: list[str] = []
    for member in grant.members:
        there = (f"{member.node_id}/{device}" for device in member.devices)
        every += own if member.node_id == grant.node_id else there
    return tuple(every)


def environment_on(names: Sequence[str]) -> dict[str, str]:
    """The environment of a process: the devices of its lease, no secret, and no library that
    reaches for the network.

    names: names of the devices; unlike numbers they stay when another device falls off its bus
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in INHERITED or name.startswith(INHERITED_PREFIXES)
    }
    return kept | {
        VISIBLE: ",".join(names),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "OMP_WAIT_POLICY": "PASSIVE",  # spinning threads made two slower than one
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
    }
