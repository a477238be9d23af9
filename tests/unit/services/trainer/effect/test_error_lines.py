"""Lines of standard error that may be logged: where it failed, never text of a tenant."""

import pytest

from services.trainer.effect.error_lines import LINES_MAX, error_lines

SECRET = "Ada Lovelace, ada@example.org"
TRACEBACK = f"""Loading weights: 100%
{SECRET}
Traceback (most recent call last):
  File "/data/t/{SECRET}/site-packages/trl/trainer.py", line 812, in train
    loss = step({SECRET!r})
  File "<frozen importlib._bootstrap>", line 7, in <module>
trl.errors.RowError: cannot read {SECRET!r}
ValueError: {SECRET}
{SECRET}: ValueError
"""


def test_frames_and_names_of_exceptions_are_logged_and_no_message() -> None:
    assert error_lines(TRACEBACK) == (
        "site-packages/trl/trainer.py:812 train",
        "<frozen importlib._bootstrap>:7 <module>",
        "trl.errors.RowError",
        "ValueError",
    )
    assert SECRET not in "\n".join(error_lines(TRACEBACK))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            f"torch.OutOfMemoryError: CUDA out of memory. {SECRET}",
            "OutOfMemoryError: out of memory",
        ),
        (f"OSError: [Errno 28] No space left on device: '{SECRET}'", "no space left on device"),
        (f"{SECRET} Segmentation fault (core dumped)", "segmentation fault"),
        ("KeyboardInterrupt", "KeyboardInterrupt"),
    ],
)
def test_a_machine_that_is_broken_or_full_is_named(line: str, words: str) -> None:
    (said,) = error_lines(line)
    assert words in said
    assert SECRET not in said


def test_the_last_lines_are_kept() -> None:
    text = "".join(f'  File "a.py", line {n}, in f\n' for n in range(100))
    assert error_lines(text) == tuple(f"a.py:{n} f" for n in range(100 - LINES_MAX, 100))
    assert error_lines("") == ()
