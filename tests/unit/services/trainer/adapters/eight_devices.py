"""Stand-in for libnvidia-ml.so.1 with eight devices.

Functions have NVML's names, pointer arguments and return codes, so pynvml runs over them unchanged.
"""

import ctypes
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

import pynvml
import pytest

GIB: Final = 1 << 30
HANDLES: Final = 1_000  # a handle is HANDLES and the device's number


@dataclass
class State:
    """One device. errors: uncorrectable; slowed: bits of clock throttle reasons."""

    name: str
    model: str = "NVIDIA H200"
    memory_bytes: int = 141 * GIB
    errors: int = 0
    rows_failed: int = 0
    slowed: int = 0
    mig: int = 0
    lost: bool = False
    busy: int | None = 0  # utilization in percent, None: not supported
    used_bytes: int = 0


@dataclass
class EightDevices:
    """Driver with `count` devices."""

    count: int = 8
    links: set[tuple[int, int]] | None = None  # pairs that NVLink connects, None: all
    # faults to report: device and XID
    xids: deque[tuple[int, int]] = field(default_factory=deque)
    states: list[State] = field(init=False)

    def __post_init__(self) -> None:
        self.states = [State(f"GPU-{at:08d}-0000") for at in range(self.count)]

    def install(self, monkeypatch: pytest.MonkeyPatch) -> "EightDevices":
        """Let pynvml find this library in place of the driver's."""
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setattr(pynvml, "nvmlLib", self)
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        return self

    def nvmlInitWithFlags(self, flags: int) -> int:  # noqa: N802  # names of NVML
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802  # a name of NVML
        return put(count, len(self.states))

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:  # noqa: N802  # a name of NVML
        return point(handle, index.value)

    def nvmlDeviceGetHandleByUUID(self, uuid: Any, handle: Any) -> int:  # noqa: N802  # a name of NVML
        for at, state in enumerate(self.states):
            if state.name.encode() == uuid.value:
                return int(pynvml.NVML_ERROR_GPU_IS_LOST) if state.lost else point(handle, at)
        return int(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetUUID(self, handle: Any, text: Any, length: Any) -> int:  # noqa: N802  # a name of NVML
        text.value = self.state(handle).name.encode()
        return 0

    def nvmlDeviceGetName(self, handle: Any, text: Any, length: Any) -> int:  # noqa: N802  # a name of NVML
        text.value = self.state(handle).model.encode()
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:  # noqa: N802  # a name of NVML
        state = self.state(handle)
        memory._obj.total, memory._obj.used = state.memory_bytes, state.used_bytes
        return 0

    def nvmlDeviceGetUtilizationRates(self, handle: Any, rates: Any) -> int:  # noqa: N802  # a name of NVML
        busy = self.state(handle).busy
        if busy is None:
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        rates._obj.gpu = busy
        return 0

    def nvmlDeviceGetP2PStatus(  # noqa: N802  # a name of NVML
        self, first: Any, other: Any, way: Any, status: Any
    ) -> int:
        pair = (number(first), number(other))
        linked = self.links is None or pair in self.links
        ok, none = pynvml.NVML_P2P_STATUS_OK, pynvml.NVML_P2P_STATUS_NOT_SUPPORTED
        return put(status, ok if linked else none)

    def nvmlDeviceGetMigMode(self, handle: Any, current: Any, pending: Any) -> int:  # noqa: N802  # a name of NVML
        return put(current, self.state(handle).mig)

    def nvmlDeviceGetTotalEccErrors(  # noqa: N802  # a name of NVML
        self, handle: Any, kind: Any, counter: Any, count: Any
    ) -> int:
        assert (kind.value, counter.value) == (1, 0), "uncorrected, since the driver was loaded"
        return put(count, self.state(handle).errors)

    def nvmlDeviceGetRemappedRows(self, handle: Any, *counts: Any) -> int:  # noqa: N802  # a name of NVML
        return put(counts[3], self.state(handle).rows_failed)

    def nvmlDeviceGetCurrentClocksThrottleReasons(  # noqa: N802  # a name of NVML
        self, handle: Any, reasons: Any
    ) -> int:
        return put(reasons, self.state(handle).slowed)

    def nvmlEventSetCreate(self, events: Any) -> int:  # noqa: N802  # a name of NVML
        return point(events, id(self))

    def nvmlDeviceRegisterEvents(self, handle: Any, kinds: Any, events: Any) -> int:  # noqa: N802  # a name of NVML
        assert kinds.value == pynvml.nvmlEventTypeXidCriticalError
        return 0

    def nvmlEventSetWait_v2(self, events: Any, data: Any, wait_ms: Any) -> int:  # noqa: N802  # a name of NVML
        # A watch that another test began on another stand-in runs until the process ends.
        if not self.xids or number(events) != id(self):
            time.sleep(wait_ms.value / 1_000)
            return int(pynvml.NVML_ERROR_TIMEOUT)
        at, xid = self.xids.popleft()
        event = data._obj
        event.eventType, event.eventData = pynvml.nvmlEventTypeXidCriticalError, xid
        event.device = ctypes.cast(HANDLES + at, pynvml.c_nvmlDevice_t)
        return 0

    def state(self, handle: Any) -> State:
        return self.states[number(handle)]


def number(handle: Any) -> int:
    address = ctypes.cast(handle, ctypes.c_void_p).value
    assert address is not None
    return address - HANDLES


def point(handle: Any, at: int) -> int:
    """Set a handle that was passed by reference."""
    address = ctypes.c_void_p(HANDLES + at)
    ctypes.memmove(ctypes.addressof(handle._obj), ctypes.byref(address), ctypes.sizeof(address))
    return 0


def put(reference: Any, value: int) -> int:
    """Set a value that was passed by reference. Returns NVML_SUCCESS."""
    reference._obj.value = value
    return 0
