"""The log as clients see it: ids that repeat, and lines of a timeline."""

from random import Random
from types import SimpleNamespace

import pytest

from schemas.job import WantedSet
from simulator.engine.sim_log import describe, fresh_id


def test_ids_are_uuids_that_repeat_with_the_seed() -> None:
    first, again = Random(5), Random(5)
    ids = [fresh_id(first) for _ in range(3)]
    assert ids == [fresh_id(again) for _ in range(3)]
    assert len(set(ids)) == 3
    assert all(id_[14] == "4" for id_ in ids)


@pytest.mark.parametrize(
    ("events", "line"),
    [
        ((), "acme: nothing"),
        ((WantedSet(job_id="ftjob-1", wanted="run"),), "acme: WantedSet(ftjob-1)"),
    ],
)
def test_a_line_of_a_timeline_names_events_and_what_they_are_about(
    events: tuple[object, ...], line: str
) -> None:
    decision = SimpleNamespace(header=SimpleNamespace(key="acme"), events=events)
    assert describe(decision) == line  # type: ignore[arg-type]  # only these fields are read
