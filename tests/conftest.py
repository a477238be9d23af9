"""Fixtures that every test may ask for. Real servers, one set for each process of a test run."""

import gc
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from tests.searches import EXAMPLES
from tests.stacks import elsewhere, sweep, temporary_data_dir
from tunery.local.stack import Stack, stack
from tunery.runtime.journal import alarm

# The same examples each time, so that a red check is red for everybody; `soak` searches further.
settings.register_profile("quick", deadline=None, derandomize=True, max_examples=EXAMPLES.quick)
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=EXAMPLES.full)
settings.register_profile("searching", deadline=None, max_examples=1_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
if settings().derandomize:
    # Hypothesis draws the constants of all modules of ours that a process has imported, so the
    # tests that ran before would choose the examples. It has no setting for that.
    providers._get_local_constants = lambda: providers._local_constants

# agents of tests load the libraries of work with their first lease: many get none
os.environ.setdefault("TUNERY_NODE_WARM", "false")

WHY_MAX: Final = 2_000  # characters of why a test failed
SECURITY: Final = "test_security_"  # before the number of a finding
ALL_TRAIN: Final = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.train\b", re.MULTILINE)


GARBAGE_OBJECTS: Final = 20_000  # new ones between two collections
gc.disable()  # until all tests are collected: modules and tests are no garbage


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-pictures", action="store_true", help="keep the console's pictures as they are now"
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests that are named after a finding of the security review for `make test-security`."""
    if item.name.startswith(SECURITY):
        item.add_marker("security")


def pytest_collection_finish() -> None:
    """Collections of garbage pass over what stays for the whole run: they took a tenth of it."""
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS, 20, 20)
    gc.enable()


@pytest.fixture
def folder_on_disk() -> Iterator[Path]:
    """Outside of `/dev/shm`, where quick tests have their folders and ranks see their own files."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # never in memory
        yield Path(folder)


@pytest.fixture
def nothing_has_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alarms belong to a process, and other tests of it have sounded some."""
    monkeypatch.setattr(alarm, "_stopped", {})


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def servers() -> AsyncIterator[Stack]:
    """Kafka, PostgreSQL, S3 and Valkey on free ports, empty at the start of the session.

    `kafka_bootstrap`, `postgres_dsn`, `s3_endpoint`, `s3_access_key`, `s3_secret_key`,
    `s3_bucket`, `valkey_url`; `kill(name)`, `pause`, `resume`, `stop`, `start`, `await_ready`.
    Tests share them: use topics, schemas and prefixes of your own.
    """
    sweep()
    with temporary_data_dir() as folder:
        async with stack(folder, environ=elsewhere()) as running:
            yield running


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A failed test is named at once: whatever ends a long run, its log says what had failed."""
    wrong = report.failed or str(report.outcome) == "rerun"
    if wrong and "PYTEST_XDIST_WORKER" not in os.environ:
        crash = getattr(report.longrepr, "reprcrash", None)
        why = (
            str(report.longrepr)
            if crash is None
            else f"{crash.path}:{crash.lineno}: {crash.message}"
        )
        again = "" if report.failed else ", tried again"
        print(
            f"\n{report.when} failed{again}: {report.nodeid} {why[-WHY_MAX:]}", file=sys.__stderr__
        )


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes as a parameter get a short name that is the same in every process."""
    return f"{argname} of {len(val)} bytes" if isinstance(val, bytes) else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files without a test that the mark wants are not read: some import torch, for seconds."""
    if not collection_path.name.startswith("test_"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    match config.option.markexpr:
        case str(mark) if mark.startswith("train"):
            unwanted = "pytest.mark.train" not in text
        case str(mark) if mark.startswith("security"):
            unwanted = SECURITY not in text and "pytest.mark.security" not in text
        case str(mark) if "not train" in mark:
            unwanted = ALL_TRAIN.search(text) is not None
        case _:
            unwanted = False
    return unwanted or None
