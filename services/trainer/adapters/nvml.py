"""NVIDIA's devices and their faults, by NVML, the library of the driver.

A call may hang with the driver, so all are made in separate threads, which end with the agent.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final, TypeVar

import pynvml

from schemas.envelope import Reason
from schemas.reasons import device_fault
from services.trainer.ports import DeviceUse
from tunery.runtime.telemetry.logs import log_event

ANSWER_S_MAX: Final = 30.0  # without a reading for so long the driver is silent
FIRST_S_MAX: Final = 10.0
POLL_MS: Final = 2_000
SLOW_S: Final = 60.0  # slowed down for so long it is a fault; after so long without, it is none
# Programs cause these; all others are faults of the device. NVIDIA's plugin for Kubernetes has the
# same list (internal/rm/health.go), and the numbers are in NVIDIA's catalogue of Xid errors.
XIDS_OF_PROGRAMS: Final = frozenset({13, 31, 43, 45, 68, 109})
SLOWED: Final = (
    pynvml.nvmlClocksThrottleReasonHwSlowdown
    | pynvml.nvmlClocksThrottleReasonHwThermalSlowdown
    | pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown
    | pynvml.nvmlClocksThrottleReasonSwThermalSlowdown
)
LOST: Final = frozenset(
    {
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_RESET_REQUIRED,
        pynvml.NVML_ERROR_NOT_FOUND,
    }
)
LOG: Final = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True)
class NvidiaDevice:
    """Accelerator of this machine, as NVIDIA's driver describes it."""

    name: str  # its UUID, which CUDA takes as well
    model: str  # name of the model in the driver's words
    memory_bytes: int


def list_devices() -> tuple[NvidiaDevice, ...]:
    """All devices of this machine, in the order of their bus; none without a driver."""
    try:
        pynvml.nvmlInit()
        handles = [
            pynvml.nvmlDeviceGetHandleByIndex(at) for at in range(pynvml.nvmlDeviceGetCount())
        ]
        return tuple(
            NvidiaDevice(
                name=pynvml.nvmlDeviceGetUUID(handle),
                model=pynvml.nvmlDeviceGetName(handle),
                memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
            )
            for handle in handles
        )
    except pynvml.NVMLError as error:
        if error.value != pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            log_event(LOG, logging.WARNING, "node.driver_unusable", error)
        return ()


def interconnect_of(names: Sequence[str]) -> str:
    """How these devices reach each other: "nvlink", "mixed" or "pcie"; empty: there are no two."""
    handles = [pynvml.nvmlDeviceGetHandleByUUID(name) for name in names]
    linked = {_is_linked(first, other) for first, other in combinations(handles, 2)}
    if not linked:
        return ""
    return "mixed" if len(linked) > 1 else "nvlink" if linked.pop() else "pcie"


def _is_linked(first: Any, other: Any) -> bool:
    way = pynvml.NVML_P2P_CAPS_INDEX_NVLINK
    status = _ask(pynvml.nvmlDeviceGetP2PStatus, first, other, way, otherwise=None)
    return bool(status == pynvml.NVML_P2P_STATUS_OK)


def within(seconds: float, call: Callable[[], T]) -> T:
    """Run a blocking call in a thread; raise TimeoutError, and abandon the thread, when it hangs.

    Returns what the call returns, and raises what it raises.
    """
    answer: Future[T] = Future()

    def work() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    if not wait([answer], seconds).done:
        raise TimeoutError(f"the driver of accelerators has not answered for {seconds:.0f} s")
    return answer.result()


@dataclass
class Slowness:
    """Detector of a device that is slowed down for long, rather than for a moment or on and off."""

    since: float | None = None
    last: float = 0.0
    is_fault: bool = False

    def note(self, slowed: bool, now: float) -> bool:
        """Take a reading at a monotonic time, in seconds; return whether it is a fault now."""
        if slowed:
            self.since = now if self.since is None else self.since
            self.last = now
            self.is_fault = self.is_fault or now - self.since >= SLOW_S
        else:
            self.since = None
            self.is_fault = self.is_fault and now - self.last < SLOW_S
        return self.is_fault


@dataclass
class DeviceWatch:
    """Looks at the devices with these names all the time, in its own thread."""

    names: Sequence[str]
    clock: Callable[[], float] = time.monotonic  # monotonic time in seconds
    _slow: dict[int, Slowness] = field(default_factory=dict)
    _xids: dict[int, int] = field(default_factory=dict)
    _read: Mapping[int, Reason] = field(default_factory=dict)
    _use: Mapping[int, DeviceUse] = field(default_factory=dict)
    _read_at: float = 0.0

    def start(self) -> None:
        """Return after the first reading, or when it takes too long."""
        self._read_at = self.clock()
        first = threading.Event()
        threading.Thread(target=self._run, args=(first,), daemon=True).start()
        first.wait(FIRST_S_MAX)

    def faults(self) -> Mapping[int, Reason]:
        """Return the faults of devices, by index in `names`."""
        if self.clock() - self._read_at >= ANSWER_S_MAX:
            return dict.fromkeys(range(len(self.names)), device_fault("driver_silent"))
        return self._read

    def use(self) -> Mapping[int, DeviceUse]:
        """Return the load of devices that report it, by index in `names`."""
        return self._use

    def look(self) -> None:
        """Read the state of each device once."""
        uses, reasons = dict[int, DeviceUse](), dict[int, Reason]()
        for number, name in enumerate(self.names):
            try:
                handle = pynvml.nvmlDeviceGetHandleByUUID(name)
                memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            except pynvml.NVMLError as error:
                if error.value in LOST:
                    reasons[number] = device_fault("unreachable")
                continue
            rates = _ask(pynvml.nvmlDeviceGetUtilizationRates, handle, otherwise=None)
            if rates is not None:
                uses[number] = DeviceUse(int(rates.gpu), int(memory.used))
            reason = self._fault_of(number, handle)
            if reason is not None:
                reasons[number] = reason
        self._use, self._read, self._read_at = uses, reasons, self.clock()

    def await_xid(self, events: Any, wait_ms: int = POLL_MS) -> None:
        """Wait for the next fault that the driver reports by number, if any."""
        try:
            event = None if events is None else pynvml.nvmlEventSetWait(events, wait_ms)
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_TIMEOUT:
                return
            event = None
        if event is None:
            time.sleep(wait_ms / 1_000)
            return
        xid = int(event.eventData)
        name = _ask(pynvml.nvmlDeviceGetUUID, event.device, otherwise=None)
        is_xid = event.eventType == pynvml.nvmlEventTypeXidCriticalError
        if is_xid and xid not in XIDS_OF_PROGRAMS and name in self.names:
            self._xids.setdefault(self.names.index(name), xid)

    def subscribe(self) -> Any:
        """Events of the devices that have some; None: this driver has none."""
        events = _ask(pynvml.nvmlEventSetCreate, otherwise=None)
        for name in self.names if events is not None else ():
            kind = pynvml.nvmlEventTypeXidCriticalError
            handle = _ask(pynvml.nvmlDeviceGetHandleByUUID, name, otherwise=None)
            if handle is not None:
                _ask(pynvml.nvmlDeviceRegisterEvents, handle, kind, events, otherwise=None)
        return events

    def _run(self, first: threading.Event) -> None:
        events = self.subscribe()
        while True:
            self.look()
            first.set()
            self.await_xid(events)

    def _fault_of(self, number: int, handle: Any) -> Reason | None:
        if number in self._xids:
            return device_fault("xid", xid=self._xids[number])
        if _has_bad_memory(handle):
            return device_fault("ecc")
        if _ask(pynvml.nvmlDeviceGetMigMode, handle, otherwise=[0])[0]:
            return device_fault("partitioned")
        reasons = _ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle, otherwise=0)
        slowness = self._slow.setdefault(number, Slowness())
        is_slow = slowness.note(bool(reasons & SLOWED), self.clock())
        return device_fault("throttled") if is_slow else None


def _has_bad_memory(handle: Any) -> bool:
    """Errors since the driver was loaded that cannot be corrected, or no rows left to replace."""
    kinds = (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
    errors = _ask(pynvml.nvmlDeviceGetTotalEccErrors, handle, *kinds, otherwise=0)
    *_, failed = _ask(pynvml.nvmlDeviceGetRemappedRows, handle, otherwise=(0, 0, 0, 0))
    return bool(errors or failed)


def _ask(call: Callable[..., Any], *arguments: Any, otherwise: Any) -> Any:
    """Call a function of NVML; return `otherwise` where the device does not support it."""
    try:
        return call(*arguments)
    except pynvml.NVMLError:
        return otherwise
