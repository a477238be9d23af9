"""Trains several adapters on one base model in one process, which take their steps in turn.

Each training is what it is alone, to the bit: it has its own data order, random numbers, optimizer,
checkpoints and events. They share the weights of the base, which none of them changes, and its
loading. Each runs in a thread, of which one works at a time (`tunery.ml.turns`): the turn passes on
where a training is asked whether it must stop, between two steps. One that ends, fails or is
stopped leaves the others going, and each can be resumed alone or beside any others.
"""

import gc
import threading
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, TypeAlias

import torch

from tunery.ml.events import EventWriter
from tunery.ml.fine_tuning import fine_tune
from tunery.ml.model import load_base
from tunery.ml.process import code_of
from tunery.ml.turns import Turn, TurnQueue
from tunery.work.codec import encode_colocated_event
from tunery.work.events import AnyWorkEvent
from tunery.work.exits import ExitCode
from tunery.work.spec import TrainSpec

Voice: TypeAlias = Callable[[str, Turn], EventWriter]


class NamedEvents(EventWriter):
    """The events of one training, on the stream of all."""

    def __init__(self, name: str, shared: EventWriter) -> None:
        super().__init__(shared.stream, shared.started_s)
        self.name, self._shared = name, shared

    def emit(self, event: AnyWorkEvent) -> None:
        """Write one event with the name of its training. Raises BrokenPipeError."""
        line = encode_colocated_event(self.name, event, self.elapsed_ms())
        self._shared.forward(line + b"\n")

    @classmethod
    def on(cls, shared: EventWriter) -> "Voice":
        """Return a factory of the trainings' event writers, which share one stream."""
        return lambda name, turn: cls(name, shared)


class CommonBase:
    """Loads a base model once. Every caller gets modules of its own around the same weights."""

    def __init__(self) -> None:
        self._bases: dict[tuple[str, torch.dtype, torch.device, bool], Any] = {}

    def __call__(
        self, folder: str, dtype: torch.dtype, torch_device: torch.device, *, four_bits: bool
    ) -> Any:
        """Load as `tunery.ml.model.load_base` does, once per base. Shared weights are frozen."""
        key = (folder, dtype, torch_device, four_bits)
        if key not in self._bases:  # a checkpoint may have its own precision
            base = load_base(folder, dtype, torch_device, four_bits=four_bits)
            self._bases[key] = base.requires_grad_(requires_grad=False)
        base = self._bases[key]
        return deepcopy(base, {id(weight): weight for weight in base.parameters()})


def train_together(
    specs: Mapping[str, TrainSpec], voice: Voice, must_stop: Callable[[str], bool]
) -> dict[str, ExitCode]:
    """Train all to their ends, and return how each ended.

    specs: specs by name, which is in the events; see `tunery.ml.inputs` for what they have in
      common
    voice: sink for the events of a named training, in its turns
    must_stop: whether the training of a name is to stop after its step
    """
    turns, load, codes = TurnQueue(), CommonBase(), dict[str, ExitCode]()
    threads = []
    for name, spec in specs.items():
        turn = turns.join()
        arguments = (name, spec, voice(name, turn), turn, must_stop, load, codes)
        threads.append(threading.Thread(target=_train, args=arguments, name=name))
    for thread in threads:
        thread.start()
    turns.go_on()
    for thread in threads:
        thread.join()
    return {name: codes[name] for name in specs}


def _train(
    name: str,
    spec: TrainSpec,
    events: EventWriter,
    turn: Turn,
    must_stop: Callable[[str], bool],
    load: CommonBase,
    codes: dict[str, ExitCode],
) -> None:
    """Run one training, in its thread."""

    def passes_on_and_stops() -> bool:
        turn.pass_on()
        return must_stop(name)

    with turn:
        codes[name] = code_of(
            lambda: fine_tune(spec, events, passes_on_and_stops, load=load), events
        )
        gc.collect()  # the others have use for its memory: its parts refer to each other
