"""Which layers are brought to the buffers, and when."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.unit.tunery.ml.test_offload import LAYERS, deep_model, gradients, ids
from tunery.ml.offload import refused_offload
from tunery.ml.passing import PassingLayers, decoder_layers
from tunery.work.exits import WorkError

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]


class CopiedLayers(PassingLayers):
    """Trained layers whose weights are kept beside; it knows what was asked of it."""

    def __init__(self, model: Any, slots: int) -> None:
        layers = decoder_layers(model, refused_offload)
        weights = [list(layer.parameters()) for layer in layers]
        super().__init__(layers, weights, torch.device("cpu"), slots)
        self.kept: list[list[Tensor]] = []
        self.brought: list[int] = []
        self.left: list[int] = []
        self._attach()

    def _keep(self, number: int) -> None:
        self.kept.append([weight.data.clone() for weight in self._weights[number]])

    def _bring(self, number: int, slot: int) -> None:
        assert slot == number % len(self._held)
        self.brought.append(number)
        for kept, view in zip(self.kept[number], self.views[number], strict=True):
            view.copy_(kept)

    def _arrive(self, slot: int) -> None:
        assert self._held[slot] is not None

    def _leave(self, number: int) -> None:
        self.left.append(number)


@pytest.mark.parametrize(
    ("slots", "forwards", "backwards"),
    [(1, [0, 1, 2, 3, 4], [3, 2, 1, 0]), (2, [0, 1, 2, 3, 4], [2, 1, 0])],
)
def test_each_layer_is_brought_once_in_each_pass(
    slots: int, forwards: list[int], backwards: list[int]
) -> None:
    """Those that the buffers have are not brought again. Gradients are those of a whole model."""
    whole, model = deep_model("Llama"), deep_model("Llama")
    layers = CopiedLayers(model, slots)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    assert model(input_ids=ids(), use_cache=False).logits.equal(
        whole(input_ids=ids(), use_cache=False).logits
    )
    assert layers.brought == forwards
    layers.brought.clear()
    model.zero_grad()
    ours, theirs = gradients(model), gradients(whole)
    assert all(ours[name].equal(theirs[name]) for name in theirs)
    again = [0, *range(1, LAYERS)] if slots == 1 else [0, 1, 2, 3, 4]
    assert layers.brought == again + backwards
    assert layers.left[-4:] == [4, 3, 2, 1]
    layers.brought.clear()
    layers.pass_all()
    assert layers.brought == list(range(1 if slots == 1 else 2, LAYERS))
    buffers = {weight.untyped_storage().data_ptr() for weight in model.model.layers.parameters()}
    assert len(buffers) == slots


def test_a_pass_without_recompute_is_refused() -> None:
    model = deep_model("Llama")
    CopiedLayers(model, 1)
    with pytest.raises(RuntimeError, match="trained with recompute only"):
        gradients(model)


def test_a_model_without_a_list_of_layers_is_refused() -> None:
    model = deep_model("Llama")
    model.model.layers = torch.nn.Sequential(*model.model.layers)
    with pytest.raises(WorkError, match="llama has no plain list of decoder layers"):
        decoder_layers(model, refused_offload)
