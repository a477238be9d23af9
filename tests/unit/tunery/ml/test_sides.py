from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tunery.ml.choices import TokenTree, likelihoods
from tunery.ml.sides import SIDES, Pair, Sides

pytestmark = [
    pytest.mark.train,
    # peft 0.21 asks transformers 5 by a name that is going away
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]
BEGINNING = tuple(range(100, 160))
TREES = [
    TokenTree((*BEGINNING, 7, 8 + at), ((20, 21), (30 + at,), (40, 41, 42)), (1, 1, 1))
    for at in range(12)
]


@pytest.fixture(scope="module", name="load")
def loader(tiny: tuple[Path, str]) -> Callable[[], Any]:
    from transformers import AutoModelForCausalLM

    return lambda: AutoModelForCausalLM.from_pretrained(tiny[0], dtype=torch.float32).eval()


@pytest.fixture(name="adapt")
def adapter(load: Callable[[], Any]) -> Callable[..., Pair]:
    from peft import LoraConfig, get_peft_model

    def adapt(**settings: Any) -> Pair:
        torch.manual_seed(3)
        model = load()
        config = LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False, **settings)
        return Pair(get_peft_model(model, config).eval())

    return adapt


def flat(of_side: list[list[float]]) -> list[float]:
    return [value for item in of_side for value in item]


def test_both_sides_in_one_pass_are_the_two_by_themselves(adapt: Callable[..., Pair]) -> None:
    pair = adapt()
    assert pair.passes == (SIDES,)
    with pair.sides(SIDES) as both:
        together = likelihoods(both, TREES, [range(len(TREES))])
    for name, of_side in zip(SIDES, together, strict=True):
        with pair.sides((name,)) as side:
            (by_itself,) = likelihoods(side, TREES, [range(len(TREES))])
        assert flat(of_side) == pytest.approx(flat(by_itself), abs=5e-5)
    assert together[0] != together[1]


def test_an_adapter_that_peft_cannot_mix_is_read_by_itself(
    adapt: Callable[..., Pair], load: Callable[[], Any]
) -> None:
    assert adapt(use_dora=True).passes == (("base",), ("adapter",))
    assert Pair(load(), load()).passes == (("base",), ("adapter",))


def test_what_was_read_is_as_it_was_after_a_row(load: Callable[[], Any]) -> None:
    sides = Sides(load())
    beginning = sides.read(BEGINNING)
    assert beginning is not None
    row = torch.tensor([7, 8, 9])
    mask = torch.ones(1, 1, 3, 63, dtype=torch.bool).tril(60)
    columns = torch.tensor([2])
    positions = torch.arange(60, 63)
    first, again = (sides.logits(row, positions, mask, columns, beginning) for _ in range(2))
    assert torch.equal(first, again)
    whole = sides.model(torch.tensor([[*BEGINNING, 7, 8, 9]])).logits[0, -1]
    assert torch.allclose(first[0, 0], whole, atol=1e-4)
    assert beginning.cache.get_seq_length() == beginning.tokens == 60


def test_a_model_that_forgets_what_it_read_goes_on_from_nothing(tmp_path: Path) -> None:
    """Gemma 2 keeps a window of some layers only."""
    from transformers import AutoModelForCausalLM

    from tests.bases import write_family

    folder = write_family("gemma2", tmp_path / "gemma2")
    assert Sides(AutoModelForCausalLM.from_pretrained(folder).eval()).read(BEGINNING) is None
