"""The stream of the tutorial: seats are held, released and expire; what is too much is refused."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from examples.first_stream import (
    HOLD_MS,
    SEATS_AGGREGATE,
    SEATS_MAX,
    HoldSeats,
    RecordTicket,
    ReleaseSeats,
    SeatsExpired,
    SeatsHeld,
    SeatsReleased,
    TicketRecorded,
    run,
)
from schemas.envelope import Rejected, Tick
from tests.unit.services.scheduler.fold import Decider

TENANT = "ada"
ROOT: Final = Path(__file__).resolve().parents[3]
#: the frame of records: all that the event core imports beside itself
FRAME: Final = ("envelope", "errors", "ids", "levels", "reasons", "sealed", "streams", "units")
DRIVERS: Final = {"aiokafka", "asyncpg", "boto3", "confluent_kafka", "pydantic", "redis"}
RUN_S_MAX: Final = 120


def box_office() -> Decider:
    return Decider(SEATS_AGGREGATE, TENANT, 0)


def code_of(events: tuple[Any, ...]) -> str:
    (refusal,) = events
    assert isinstance(refusal, Rejected)
    return refusal.code


def test_seats_are_held_until_they_are_released_or_expire() -> None:
    office = box_office()
    assert office.when(HoldSeats(seats=3)) == (SeatsHeld(seats=3, until=HOLD_MS),)
    assert office.when(ReleaseSeats(seats=1)) == (SeatsReleased(seats=1),)
    assert office.when(Tick()) == ()
    office.at = HOLD_MS
    assert office.when(Tick()) == (SeatsExpired(seats=2),)
    assert office.state[TENANT].held == ()


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (HoldSeats(seats=0), "bad_count"),
        (HoldSeats(seats=SEATS_MAX + 1), "full"),
        (ReleaseSeats(seats=1), "not_held"),
        (RecordTicket(hold_id="gone", issued=True), "not_awaited"),
    ],
)
def test_what_cannot_be_is_refused_with_a_code(command: Any, code: str) -> None:
    assert code_of(box_office().when(command)) == code


def test_a_hold_awaits_its_ticket_once() -> None:
    office = box_office()
    office.when(HoldSeats(seats=1))
    (hold_id,) = office.state[TENANT].awaiting_ticket
    ticket = RecordTicket(hold_id=hold_id, issued=True)
    assert office.when(ticket) == (TicketRecorded(hold_id=hold_id, issued=True),)
    assert code_of(office.when(ticket)) == "not_awaited"


async def test_the_tutorials_run_prints_an_entry_for_each_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await run()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["ada"] * 3


def test_the_tutorials_stream_runs_on_the_event_core_alone(tmp_path: Path) -> None:
    """A copy of the event core, its frame and the example is enough; no driver is loaded."""
    shutil.copytree(ROOT / "tunery/runtime", tmp_path / "tunery/runtime")
    for name in ("schemas/__init__", *(f"schemas/{name}" for name in FRAME)):
        (tmp_path / "schemas").mkdir(exist_ok=True)
        shutil.copy(ROOT / f"{name}.py", tmp_path / f"{name}.py")
    shutil.copy(ROOT / "examples/first_stream.py", tmp_path)
    script = (
        "import asyncio, json, sys; sys.path = [p for p in sys.path if p != sys.argv[1]];"
        "import first_stream; asyncio.run(first_stream.run()); print(json.dumps(list(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(ROOT)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *printed, modules = done.stdout.splitlines()
    assert len(printed) == 3
    assert not DRIVERS & {name.partition(".")[0] for name in json.loads(modules)}
