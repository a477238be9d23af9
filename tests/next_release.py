"""The release after this one, for tests of upgrades: `python -m tests.next_release SERVICE`, or
`tunery` and its words in place of the service.

It is this release, and level 2 of the log: each submitted job is greeted (an event that the release
before cannot read) and remarked on (an event that it may skip), and to pause a job greets it, too.
"""

import sys
from dataclasses import replace
from importlib import import_module
from typing import Any, ClassVar, Final

from schemas import levels
from schemas.envelope import Context, Header, Message

assert "schemas.streams" not in sys.modules, "the levels come before all that has read them"
vars(levels).update(LEVELS=(*levels.LEVELS, levels.Level(2, "greetings of jobs")), LEVEL=2)

from schemas import job  # noqa: E402  # after the levels


class JobGreeted(Message):
    SINCE: ClassVar[int] = 2
    job_id: str


class JobRemarked(Message):
    """An event for people alone."""

    SINCE: ClassVar[int] = 2
    SKIPPABLE: ClassVar[bool] = True
    job_id: str


NEW: Final = (JobGreeted, JobRemarked)
vars(job).update(Event=job.Event | JobGreeted | JobRemarked)

from services.scheduler import app as scheduler  # noqa: E402  # after the events
from tunery.runtime.hosts import levels as level_host  # noqa: E402  # after the levels

vars(level_host).update(release=lambda: "next")
_JOBS, _REACT = scheduler.JOBS, vars(scheduler)["react_job"]


def decide(state: Any, command: Any, context: Context) -> tuple[Message, ...]:
    if isinstance(command, job.PauseJob):
        return (JobGreeted(job_id=command.job_id),)
    decided = _JOBS.decide(state, command, context)
    if not any(isinstance(event, job.JobSubmitted) for event in decided):
        return decided
    remarked = (*decided, JobRemarked(job_id=command.job_id))
    # below the level it decides as the release before
    return (*remarked, JobGreeted(job_id=command.job_id)) if context.level >= 2 else remarked


def evolve(state: Any, event: Any, context: Context) -> Any:
    return state if isinstance(event, NEW) else _JOBS.evolve(state, event, context)


def react(header: Header, event: Any) -> tuple[Any, ...]:
    sends: tuple[Any, ...] = () if isinstance(event, NEW) else _REACT(header, event)
    return sends


vars(scheduler).update(JOBS=replace(_JOBS, decide=decide, evolve=evolve), react_job=react)

if __name__ == "__main__":
    name = sys.argv.pop(1)
    if name == "tunery":
        from tunery.cli.main import main as tunery

        tunery()
    else:
        from tunery.platform.process import main

        main(name, import_module(f"services.{name}.app").build)
