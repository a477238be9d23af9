"""Self-check of ranks: whether a repeated step gives the same bytes, and the notes about it."""

from pathlib import Path

import pytest

from tests.unit.tunery.ml.rank_trainings import (
    COPIED,
    SHARDED,
    AddsNoise,
    go_ranks,
    spec_of,
    trained,
)
from tests.unit.tunery.ml.trainings import of
from tunery.work.exits import ExitCode
from tunery.work.spec import Engine, TrainSpec

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]


@pytest.fixture
def tmp_path(folder_on_disk: Path) -> Path:
    """Ranks have a `/dev/shm` of their own, and quick tests have their folders there."""
    return folder_on_disk


@pytest.mark.parametrize("engine", [COPIED, SHARDED], ids=["copied", "sharded"])
def test_review2_d1_ranks_check_that_their_steps_repeat_and_say_so(
    engine: Engine, spec: TrainSpec
) -> None:
    events = trained(spec_of(spec, engine, max_steps=2))
    (started,) = of(events, "started")
    assert started["environment"]["self_check"] == "equal"
    assert any(
        "to the same bytes on every rank" in event["message"] for event in of(events, "note")
    )


def test_review2_d1_steps_that_do_not_repeat_are_named_and_nothing_is_claimed(
    spec: TrainSpec,
) -> None:
    """One rank gets a different weight when it repeats a step; both ranks report the difference."""
    spec = spec_of(spec, SHARDED, max_steps=1)
    codes, events = go_ranks(spec, {1: AddsNoise(step=2)})
    assert codes == [ExitCode.FINISHED] * 2
    assert [of(each, "started")[0]["environment"]["self_check"] for each in events] == [
        "different"
    ] * 2
    notes = [event["message"] for event in of(events[0], "note")]
    assert any("a rank came to other bytes" in note for note in notes)
