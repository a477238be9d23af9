from schemas.node import DeviceFault, working_devices
from schemas.reasons import device_fault


def test_devices_without_a_fault_work_whatever_is_wrong_with_others() -> None:
    faults = [DeviceFault(device=number, reason=device_fault("ecc")) for number in (1, 7)]
    assert working_devices(4, faults) == {0, 2, 3}  # there is no eighth
    assert working_devices(2, ()) == {0, 1}
