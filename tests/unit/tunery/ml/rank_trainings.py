"""Small trainings of several ranks: children of one process that has imported what they need.

They train behind the walls that a node's agent builds around ranks: a network and memory of their
own, and no files but those of the lease and its base.
"""

import gc
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from msgspec.structs import replace

from tests.unit.tunery.ml.trainings import Event
from tunery.confinement.confined import Confinement, private_environment, shared_namespaces
from tunery.confinement.enter import confine
from tunery.confinement.policy import ConfinementPolicy, with_links
from tunery.work.exits import ExitCode
from tunery.work.spec import Engine, TrainSpec

FORKS: Any = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tunery.ml.fine_tuning", "tunery.ml.engines.fsdp2"])
COPIED = Engine(name="fsdp2")
SHARDED = Engine(name="fsdp2", weights="sharded")
DIVIDED = Engine(name="fsdp2", weights="sharded", tensor_parallel=2)

PARTED = Engine(name="fsdp2", context_parallel=2)


class StopAfter:
    """Stops the training after `steps` steps. Called before the first step and after each."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


class DieAfter(StopAfter):
    """Ends the process after `steps` steps, as SIGKILL would."""

    def __call__(self) -> bool:
        if super().__call__():
            os.kill(os.getpid(), 9)
        return False


class AddsNoise(StopAfter):
    """Other weights after one step of the optimizer, counted from the trial step; no request."""

    def __init__(self, step: int) -> None:
        super().__init__(10_000)
        self.step = step

    def __call__(self) -> bool:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        if self.left == 10_000:  # before the first step
            register_optimizer_step_post_hook(self._after_step)
        return super().__call__()

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        if self.step == 0:
            optimizer.param_groups[0]["params"][0].data.add_(1e-3)
        self.step -= 1


NEVER = StopAfter(10_000)


def be_rank(
    spec: TrainSpec,
    number: int,
    folder: Path,
    must_stop: Callable[[], bool],
    nodes: int,
    namespaces: Sequence[str],
) -> None:
    """In a child: enter the walls of ranks, train, and leave as a rank does.

    namespaces: files by which they are opened
    """
    gc.freeze()  # what the other process has imported is no garbage
    policy = ConfinementPolicy(
        read=with_links([Path(spec.base_dir)]),
        write=(str(folder.parent),),
        network="loopback",
        namespaces=tuple(os.open(name, os.O_RDONLY) for name in namespaces),
    )
    rights = Confinement("require").rights(policy)
    assert rights is not None
    confine(rights)
    os.environ |= private_environment(folder) | {
        "RANK": str(number),
        "WORLD_SIZE": str(spec.ranks),
        "LOCAL_RANK": str(number % (spec.ranks // nodes)),
        "LOCAL_WORLD_SIZE": str(spec.ranks // nodes),
        "TUNERY_RENDEZVOUS": f"file://{folder}/rendezvous",
        "GLOO_SOCKET_IFNAME": "lo",
        "DS_ACCELERATOR": "cpu",
    }
    from tunery.ml.events import EventWriter
    from tunery.ml.fine_tuning import fine_tune
    from tunery.ml.ranks import is_lost

    with (folder / f"{number}.jsonl").open("wb") as stream:
        events = EventWriter(stream, time.monotonic())
        try:
            code = fine_tune(spec, events, must_stop)
        except Exception as error:
            code = ExitCode.RANK_LOST if is_lost(error) else events.emit_failure(error)
        os._exit(code)


def go_ranks(
    spec: TrainSpec,
    requests: Mapping[int, StopAfter] | None = None,
    specs: Mapping[int, TrainSpec] | None = None,
    nodes: int = 1,
) -> tuple[list[int], list[list[Event]]]:
    """Exit codes and events of all ranks.

    requests: to stop, of the ranks that get one
    specs: of the ranks that read another one
    nodes: that they say they are on
    """
    folder = Path(f"{spec.out_dir}.ranks-{uuid4().hex}")
    folder.mkdir()
    shared = shared_namespaces("loopback")
    opened = [f"/proc/{os.getpid()}/fd/{descriptor}" for descriptor in shared]
    children = []
    for number in range(spec.ranks):
        own = (specs or {}).get(number, spec)
        arguments = (own, number, folder, (requests or {}).get(number, NEVER), nodes, opened)
        children.append(FORKS.Process(target=be_rank, args=arguments))
        children[-1].start()
    for child in children:
        child.join()
    for descriptor in shared:
        os.close(descriptor)
    events = [
        [
            event
            for line in (folder / f"{number}.jsonl").read_text().splitlines()
            if (event := json.loads(line))["type"] != "beat"  # which comes whenever 5 s have passed
        ]
        for number in range(spec.ranks)
    ]
    return [child.exitcode for child in children], events


def spec_of(spec: TrainSpec, engine: Engine, ranks: int = 2, **hyper: Any) -> TrainSpec:
    """Without dropout, which ranks draw anew for each micro-batch."""
    changed = replace(spec.hyper, dropout=0.0, **hyper)
    return replace(
        spec,
        hyper=changed,
        ranks=ranks,
        engine=engine,
        checkpoint_every_steps=3,
        out_dir=f"{spec.out_dir}-{engine.name}-{engine.weights}-{ranks}",
    )


def trained(spec: TrainSpec, **kwargs: Any) -> list[Event]:
    """Events of the first rank of a training that all ranks finish."""
    codes, events = go_ranks(spec, **kwargs)
    assert codes == [ExitCode.FINISHED] * spec.ranks, [
        *codes,
        *(of_rank[-1:] for of_rank in events),
    ]
    return events[0]
