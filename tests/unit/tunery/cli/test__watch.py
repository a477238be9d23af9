"""Following a job: its messages, and the curve of its loss."""

import threading
from typing import Any, get_args

import pytest

from schemas.job import Phase
from tests.unit.tunery.cli.test__job_view import JOB
from tunery.cli import _watch
from tunery.cli._watch import _line, _refreshed, _status, sparkline
from tunery.client import Unreachable


def test_message_with_brackets_is_shown_as_it_is() -> None:
    event = {"level": "error", "created_at": 0, "message": "cannot read rows [/red].jsonl"}
    assert _line(event).plain.endswith("cannot read rows [/red].jsonl")


@pytest.mark.parametrize("values", [[], [1.0], [2.0, 1.0], [float(n) for n in range(500)]])
def test_sparkline_is_never_wider_than_its_width(values: list[float]) -> None:
    assert len(sparkline(values, width=40)) == min(40, len(values))


def test_falling_loss_falls() -> None:
    assert sparkline([8.0, 4.0, 1.0]) == "█▄▁"


def test_first_hour_09_a_watched_job_is_read_although_no_event_arrives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The job was read only when an event arrived, so its state was up to 8 seconds old."""
    monkeypatch.setattr(_watch, "REFRESH_S", 0.001)
    read, times = threading.Event(), []

    def refresh() -> None:
        times.append(1)
        if len(times) == 1:
            raise Unreachable("away for a moment")
        read.set()

    with _refreshed(refresh):
        assert read.wait(180)
    for thread in threading.enumerate():
        if thread.name == "refresh job":
            thread.join(180)
            assert not thread.is_alive()


RUNNING = {"step": 3, "total_steps": 6, "percent": 41.0, "train_loss": 2.5, "seconds_remaining": 95}


@pytest.mark.parametrize("phase", get_args(Phase))
def test_first_hour_09_each_phase_says_what_is_done(phase: str) -> None:
    job: dict[str, Any] = {**JOB, "status": "running", "phase": phase, "queue": None}
    assert _status(job, []).startswith("running: ")
    shown = _status({**job, "progress": RUNNING}, [])
    assert "41 %, about 1 min 35 s left" in shown
    assert shown.startswith("step 3 of 6" if phase == "running" else "running: ")


WAITS: dict[str, Any] = {"reason": "Waiting for 1 slot.", "eta": None, "eta_latest": None}
#: what a person reads below the events: the status, the phase, the answer's other fields
SCREEN: list[tuple[str, str, dict[str, Any], str]] = [
    (
        "validating_files",
        "validating",
        {"queue": {**WAITS, "reason": "The data set is being prepared."}},
        "validating_files: The data set is being prepared.",
    ),
    ("queued", "queued", {"queue": WAITS}, "queued: Waiting for 1 slot."),
    ("running", "provisioning", {}, "running: a node prepares the job"),
    ("running", "running", {}, "running: the training starts"),
    (
        "running",
        "running",
        {"progress": RUNNING},
        "step 3 of 6, 41 %, about 1 min 35 s left loss 2.500 █▁",
    ),
    (
        "running",
        "checkpointing",
        {"progress": {**RUNNING, "step": 6, "percent": 88.0, "seconds_remaining": 40}},
        "running: the last checkpoint is written, 88 %, about 40 s left loss 2.500 █▁",
    ),
    (
        "running",
        "evaluating",
        {"progress": {**RUNNING, "step": 6, "percent": 90.0}, "queue": WAITS},
        "running: Waiting for 1 slot.",
    ),
    (
        "running",
        "evaluating",
        {"progress": {**RUNNING, "step": 6, "percent": 94.2, "seconds_remaining": 17}},
        "running: the adapter is compared with its base model, 94 %, about 17 s left loss 2.500 █▁",
    ),
    (
        "running",
        "registering",
        {"progress": {**RUNNING, "step": 6, "percent": 99.9, "seconds_remaining": 0}},
        "running: the adapter is published, 99 % loss 2.500 █▁",
    ),
    (
        "paused",
        "queued",
        {"queue": {**WAITS, "reason": "Paused: resume it."}},
        "paused: Paused: resume it.",
    ),
]


@pytest.mark.parametrize(("status", "phase", "fields", "said"), SCREEN)
def test_first_hour_09_what_is_read_in_each_phase(
    status: str, phase: str, fields: dict[str, Any], said: str
) -> None:
    job = {**JOB, "queue": None, "status": status, "phase": phase, **fields}
    assert _status(job, [3.0, 2.5] if job["progress"] else []) == said


def test_every_phase_of_a_job_is_read_once() -> None:
    assert {phase for _, phase, _, _ in SCREEN} == {*get_args(Phase)} - {"done"}


def test_first_hour_09_a_waiting_job_shows_its_reason_and_its_start() -> None:
    queue = {"reason": "Waiting for 1 slot.", "eta": 4_000_000_000, "eta_latest": 4_000_003_600}
    shown = _status({**JOB, "queue": queue}, [])
    assert shown.startswith("queued: Waiting for 1 slot. Starts ")
    assert " to " in shown
