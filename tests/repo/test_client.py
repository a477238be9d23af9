"""The two clients of the API are one."""

import subprocess

from tests.repo.client import ROOT, SOURCE, TARGET, synchronous


def formatted(text: str) -> str:
    ruff = [".venv/bin/ruff", "format", "--stdin-filename", str(TARGET), "-"]
    done = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout


def test_the_synchronous_client_follows_from_the_asynchronous_one() -> None:
    """Else: `python -m tests.repo.client && make fmt`."""
    assert TARGET.read_text() == formatted(synchronous(SOURCE.read_text()))


def test_nothing_asynchronous_is_left_over() -> None:
    code = TARGET.read_text().partition('"""\n\n')[2]
    assert not {"async", "await", "asyncio", "AsyncApi"} & set(code.replace("(", " ").split())
