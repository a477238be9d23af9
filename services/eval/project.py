"""The eval service's to-do list: one row per evaluation that wants a verdict."""

from typing import Any

from schemas.envelope import Header
from schemas.job import JobEnded, VerdictDue, VerdictRecorded
from tunery.runtime.verbs import Change, Done, Todo

VERDICT = "verdict"


def project(header: Header, event: Any) -> tuple[Change, ...]:
    match event:
        case VerdictDue():
            return (Todo(VERDICT, event.job_id, header.key, header.tenant, event),)
        case VerdictRecorded() | JobEnded():
            return (Done(VERDICT, event.job_id),)
        case _:
            return ()
