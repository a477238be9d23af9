"""Commands and events of runs are counted by the kinds that the schemas have."""

from simulator.control_plane.coverage import (
    UNPLAYED,
    kind_of,
    reason_unplayed,
    table,
    unmet,
    vocabulary,
    wrongly_excused,
)
from simulator.control_plane.samples import submit

PLAYED = [kind for kind in vocabulary() if reason_unplayed(kind) is None]


def test_review2_w1_what_is_not_played_has_a_reason_and_is_in_the_schemas() -> None:
    assert {*UNPLAYED} <= {*vocabulary()}
    assert all(UNPLAYED.values())


def test_review2_w1_a_kind_that_no_run_met_is_named() -> None:
    met = dict.fromkeys(PLAYED, 1)
    assert unmet(met) == []
    assert unmet({**met, PLAYED[-1]: 0}) == [PLAYED[-1]]


def test_review2_w1_an_excuse_ends_with_the_first_run_that_meets_its_kind() -> None:
    excused = next(iter(UNPLAYED))
    assert wrongly_excused(PLAYED) == []
    assert wrongly_excused([*PLAYED, excused]) == [excused]


def test_review2_w1_the_table_has_a_line_of_each_kind() -> None:
    kind = kind_of("job", "command", submit())
    lines = [*table({kind: 3})]
    assert len(lines) == len(vocabulary())
    assert "        3 job command SubmitJob" in lines
    assert "        0 job command PauseJob  NEVER MET" in lines
