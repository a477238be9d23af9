"""Environment of the process that works under a lease: its devices, and nothing secret."""

import errno
import os
from collections.abc import Sequence
from typing import Final

from services.trainer.domain.state import Grant

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"  # numbers or names of devices, separated by commas
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


def process_environment(grant: Grant) -> dict[str, str]:
    """The environment of the process that works under a lease. Raises as `environment_on`."""
    return environment_on(grant.member.devices if accelerators(grant) else ())


def environment_on(devices: Sequence[int]) -> dict[str, str]:
    """The environment of a process: the devices of its lease, no secret, and no library that
    reaches for the network.

    Raises OSError (ENODEV) when the agent does not see one of the devices.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in INHERITED or name.startswith(INHERITED_PREFIXES)
    }
    return kept | {
        VISIBLE: _visible(devices, os.environ.get(VISIBLE)),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the driver's tool counts like this
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "OMP_WAIT_POLICY": "PASSIVE",  # spinning threads made two slower than one
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
    }


def _visible(devices: Sequence[int], agents: str | None) -> str:
    """The devices of a lease, which are numbered as the agent sees them.

    agents: the agent's own variable; None: it sees all devices of the machine
    """
    if agents is None:
        return ",".join(str(device) for device in devices)
    names = [name.strip() for name in agents.split(",") if name.strip()]
    if devices and max(devices) >= len(names):
        text = f"device {max(devices)} of the lease is not in the agent's {VISIBLE}={agents}"
        raise OSError(errno.ENODEV, text)
    return ",".join(names[device] for device in devices)
