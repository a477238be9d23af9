"""Small trainings of several ranks: children of one process that has imported what they need."""

import gc
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

from tests.unit.tunery.ml.trainings import Event
from tests.unit.tunery.ranks.carriers import Join
from tunery.ranks.joining import joined
from tunery.work.spec import TrainSpec

FORKS: Any = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tunery.ml.fine_tuning"])


class StopAfter:
    """A request to stop after so many steps. It is asked once before them, and after each."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


NEVER = StopAfter(10_000)


class Descriptor:
    """A descriptor of the parent, which a child gets open."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (DupFd(self.number),)


def _received(passed: Any) -> Any:
    return Descriptor(passed.detach())


def be_rank(
    spec: TrainSpec,
    number: int,
    folder: Path,
    must_stop: Callable[[], bool],
    descriptors: Sequence[Descriptor],
) -> None:
    """In a child: train, and leave as a rank does."""
    gc.freeze()  # what the other process has imported is no garbage
    from tunery.ml.events import EventWriter
    from tunery.ml.exchange import Exchange, RankLost
    from tunery.ml.fine_tuning import fine_tune
    from tunery.ml.ranks import ALONE, Ranks
    from tunery.work.exits import ExitCode

    with (folder / f"{number}.jsonl").open("wb") as stream:
        events = EventWriter(stream, time.monotonic())
        try:
            own = tuple(each.number for each in descriptors)
            several = spec.ranks > 1
            ranks = Ranks(Exchange(number, spec.ranks, own)) if several else ALONE
            code = fine_tune(spec, events, must_stop, ranks)
        except RankLost:
            code = ExitCode.RANK_LOST
        except Exception as error:
            code = events.emit_failure(error)
    os._exit(code)


def go_ranks(
    spec: TrainSpec,
    requests: Mapping[int, StopAfter] | None = None,
    specs: Mapping[int, TrainSpec] | None = None,
    join: Join = joined,
) -> tuple[list[int], list[list[Event]]]:
    """Exit codes and events of all ranks.

    requests: to stop, of the ranks that get one
    specs: of the ranks that read another one
    join: what joins them
    """
    folder = Path(f"{spec.out_dir}.ranks")
    folder.mkdir()
    children = []
    with join(spec.ranks) as every:
        for number, descriptors in enumerate(every):
            must_stop = (requests or {}).get(number, NEVER)
            own = (specs or {}).get(number, spec)
            passed = tuple(map(Descriptor, descriptors))
            arguments = (own, number, folder, must_stop, passed)
            children.append(FORKS.Process(target=be_rank, args=arguments))
            children[-1].start()
    for child in children:
        child.join()
    events = [
        [json.loads(line) for line in (folder / f"{number}.jsonl").read_text().splitlines()]
        for number in range(spec.ranks)
    ]
    return [child.exitcode for child in children], events
