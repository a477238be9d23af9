"""Exit codes: one for each cause that a process can name, and none that means success."""

import pytest

from tunery.work.exits import EXIT_OF_CAUSE, ExitCode, WorkError, is_machine_fault


def test_every_cause_of_a_process_has_a_code_of_its_own() -> None:
    causes = {"user", "bad_data", "divergence", "platform", "oom", "bad_node", "nothing_learnt"}
    assert causes == set(EXIT_OF_CAUSE)
    codes = list(EXIT_OF_CAUSE.values())
    assert len(set(codes)) == len(codes)
    assert not {ExitCode.FINISHED, ExitCode.PREEMPTED, ExitCode.ORPHANED} & set(codes)


def test_an_error_carries_cause_message_and_advice() -> None:
    error = WorkError("oom", "out of memory", "Lower batch_size.")
    assert (error.cause, str(error), error.advice) == ("oom", "out of memory", "Lower batch_size.")


@pytest.mark.parametrize(
    ("error", "is_fault"),
    [
        (OSError(30, "Read-only file system"), True),
        ("RuntimeError: CUDA driver version is insufficient", True),
        ("NVRM: GPU has fallen off the bus", True),
        (FileNotFoundError(2, "No such file"), False),
        ("ValueError: shapes do not match", False),
    ],
)
def test_a_machine_is_at_fault_for_its_storage_driver_and_devices(
    error: Exception | str, is_fault: bool
) -> None:
    assert is_machine_fault(error) is is_fault
