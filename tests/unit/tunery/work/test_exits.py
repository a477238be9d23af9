"""Exit codes: one for each cause that a process can name, and none that means success."""

from tunery.work.exits import EXIT_OF_CAUSE, ExitCode, WorkError


def test_every_cause_of_a_process_has_a_code_of_its_own() -> None:
    assert set(EXIT_OF_CAUSE) == {"user", "bad_data", "divergence", "platform", "oom"}
    codes = list(EXIT_OF_CAUSE.values())
    assert len(set(codes)) == len(codes)
    assert not {ExitCode.FINISHED, ExitCode.PREEMPTED, ExitCode.ORPHANED} & set(codes)


def test_an_error_carries_cause_message_and_advice() -> None:
    error = WorkError("oom", "out of memory", "Lower batch_size.")
    assert (error.cause, str(error), error.advice) == ("oom", "out of memory", "Lower batch_size.")
