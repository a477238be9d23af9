"""`pool`: a training whose lease has a member on each of two nodes."""

from msgspec.structs import replace

from schemas.envelope import Tick
from schemas.pool import ReportCheckpoint, ReportExit, ReportRendezvous, RequestPlacement
from schemas.training import Checkpoint
from tests.histories.recorder import Recorder
from tests.histories.stories.pool import (
    MINUTE_MS,
    checkpoint,
    describe,
    exited,
    freed,
    node,
    request,
    seen,
    started,
    token_of,
)


def asked(attempt: int, checkpoints: tuple[Checkpoint, ...] = ()) -> RequestPlacement:
    """Three slots, where no node has more than two."""
    placement = request(1, attempt, checkpoints).placement
    return RequestPlacement(placement=replace(placement, slots=3))


def a_training_on_two_nodes(story: Recorder) -> None:
    """Its second member fails, is lost, and is free before the first one reports success."""
    for name in ("n1", "n2", "n3"):
        story.when(node(name, 1, 2))
    story.when(describe(1))
    first = token_of(story.when(asked(1)))
    opened = story.seal('{"host": "10.0.0.1", "port": 4711}')
    story.when(ReportRendezvous(token=first, incarnation="n1-1", rendezvous=opened))
    story.when(ReportRendezvous(token=first, incarnation="n2-1", rendezvous=opened))  # refused
    story.when(started(first, "n1"))
    story.when(freed(first, "n2"), after_ms=MINUTE_MS)
    failed = ReportExit(
        token=first,
        incarnation="n1-1",
        outcome="failed",
        elapsed_ms=MINUTE_MS,
        cause="bad_node",
        detail=story.seal("on n2: rank 2 of 3 was killed after the row of Anne"),
        faulty_node="n2",
    )
    story.when(failed)
    story.when(freed(first, "n1"))
    second = token_of(story.when(asked(2)))
    story.when(started(second, "n1"))
    story.when(
        ReportCheckpoint(token=second, incarnation="n1-1", checkpoint=checkpoint(10, 2)),
        after_ms=2 * MINUTE_MS,
    )
    seen(story, "n1", after_ms=MINUTE_MS)
    seen(story, "n3", silent=True, after_ms=MINUTE_MS)
    story.when(freed(second, "n1"))
    story.when(node("n3", 2, 2))
    story.when(Tick(), after_ms=10 * MINUTE_MS)
    third = token_of(story.when(asked(3, (checkpoint(10, 2),))))
    story.when(started(third, "n1", 10))
    exited(story, third, "n1", "succeeded", 5_000)
