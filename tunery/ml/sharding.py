"""Decoder layers whose trained weights are dealt to the ranks of a training.

A rank keeps the masters of its own weights, in fp32. The device has one buffer, as large as the
largest layer: before a layer computes, each rank tells the others what it has of it, in the type of
the run. Once the backward pass has left a layer, its gradients are added to the sums of the ranks
that own its weights, and are gone. So no rank has all weights of the layers, or all gradients.

Each such word is spoken by all ranks in the same order. So ranks pass the same layers at the same
time: each computes a micro-batch of the same round, or takes part without one; evaluations are
computed by all of them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor

from tunery.ml.exchange import bytes_of
from tunery.ml.passing import PassingLayers, decoder_layers
from tunery.ml.ranks import Ranks
from tunery.ml.shares import owners_of
from tunery.plan.methods import SHARDED
from tunery.work.exits import WorkError
from tunery.work.spec import Hyper

SLOTS: Final = 1  # nothing is brought while a layer computes: all ranks wait for each other


def check_sharding(hyper: Hyper, ranks: int) -> None:
    """Raises WorkError("user") for what is not trained so."""
    for is_so, why in (
        (hyper.adaptation != "full", f"with {hyper.adaptation} the base is only read: see offload"),
        (ranks == 1, "there is one rank"),
        (hyper.method not in SHARDED, f"a micro-batch of {hyper.method} is more than one pass"),
        (not hyper.packing, "without packing each document is a pass"),
        (hyper.best_checkpoint, "best_checkpoint would keep a copy of all weights"),
        (hyper.sample_every_steps > 0, "each token of an answer would pass all layers"),
    ):
        if is_so:
            raise refused_sharding(why)


def refused_sharding(why: str) -> WorkError:
    """The error for a training whose layers cannot be sharded."""
    message = f"training.shard_weights deals the weights of layers to ranks: {why}"
    return WorkError("user", message, "Set training.shard_weights to false.")


class ShardedLayers(PassingLayers):
    """Decoder layers of which each rank has a share.

    masters: of the weights of this rank, by their names in the model
    beside: names of the model's weights that are in no layer: every rank has them
    hand_over: adds the gradients of weights, which the first so many ranks have, to their sums

    Raises WorkError("user") for a model that has no plain list of such layers.
    """

    hand_over: Callable[[Sequence[str], int], None]

    def __init__(self, model: Any, device: torch.device, ranks: Ranks) -> None:
        """`model`: in the machine's memory; `model.to` moves what is in no layer."""
        layers = decoder_layers(model, refused_sharding)
        weights = dict(model.named_parameters())
        if len({weight.dtype for weight in weights.values()}) > 1:
            raise refused_sharding("the weights of this model are of several types")
        passing = [list(layer.parameters()) for layer in layers]
        super().__init__(layers, passing, device, SLOTS)
        self._ranks, self._givers, self._returns = ranks, ranks.count, False
        self._owners = owners_of(weights, ranks.count)
        names = {id(weight): name for name, weight in weights.items()}
        self._names = [[names[id(weight)] for weight in of_layer] for of_layer in passing]
        of_layers = {name for of_layer in self._names for name in of_layer}
        self.beside = [name for name in weights if name not in of_layers]
        self.masters: dict[str, Tensor] = {}
        self._device = device
        self._attach()

    def weights_of(self, number: int) -> dict[str, Tensor]:
        """The weights of a layer that is on the device, by their names in the model."""
        return dict(zip(self._names[number], self.views[number], strict=True))

    def forget(self) -> None:
        """Have no layer on the device any more: its weights have changed."""
        self._held, self._current = [None] * SLOTS, None

    @contextmanager
    def round(self, givers: int) -> Iterator[None]:
        """A micro-batch of each of the first so many ranks: its block is a forward and a backward
        pass.

        The gradients that are left then are those of the first layer, and of what is in none.
        Raises RankLost.
        """
        self._givers = givers
        yield
        self.hand_over([*self._names[0], *self.beside], givers)
        if any(weight.grad is not None for of_layer in self._weights for weight in of_layer):
            raise RuntimeError("a layer has gradients that came after the backward pass left it")

    @contextmanager
    def passes(self, count: int) -> Iterator[None]:
        """Its block computes so many forward passes, others maybe more. Raises RankLost."""
        most = int(max(self._ranks.each(count)))
        yield
        for _ in range(most - count):
            self.pass_all()

    def take_part(self) -> None:
        """Pass as a rank does that computes a micro-batch. Raises RankLost."""
        self.pass_all()
        self._returns = True
        with torch.no_grad():
            for number in reversed(range(len(self._layers))):
                self._before(number)
        self._returns = False

    def _keep(self, number: int) -> None:
        for name, weight in zip(self._names[number], self._weights[number], strict=True):
            if self._owners[name] == self._ranks.number:
                own = weight.detach().to(self._device, torch.float32, copy=True)
                self.masters[name] = own.contiguous().requires_grad_()

    def _bring(self, number: int, slot: int) -> None:
        views = self.views[number]
        own = {
            at: self.masters[name].detach().to(views[at].dtype)
            for at, name in enumerate(self._names[number])
            if name in self.masters
        }
        owners = [self._owners[name] for name in self._names[number]]
        sizes = [view.nbytes for view in views]
        for at, part, content in self._ranks.tell(own, sizes, owners):
            bytes_of(views[at])[part].copy_(content)

    def _arrive(self, slot: int) -> None:
        """It is there."""

    def _leave(self, number: int) -> None:
        if self._returns or torch._C._current_graph_task_id() != -1:  # as `checkpoint` asks
            self.hand_over(self._names[number], self._givers)
