"""The model of a training: layers that are named, and families."""

from pathlib import Path

import msgspec
import pytest

from tests.unit.tunery.ml.trainings import HYPER, go, random_base
from tunery.work.exits import WorkError
from tunery.work.spec import TrainSpec

pytestmark = [
    pytest.mark.train,
    # peft 0.21 and trl 1.16 ask transformers 5 by names that are going away
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"target_modules": ("no_such",)}, "target_modules ('no_such',) are not in this model"),
        ({"rank_pattern": (("no_such", 4),)}, "rank_pattern names 'no_such'"),
        ({"modules_to_save": ("no_such",)}, "modules_to_save names 'no_such'"),
    ],
)
def test_layers_that_the_base_does_not_have_are_named(
    spec: TrainSpec, changes: dict[str, object], what: str
) -> None:
    with pytest.raises(WorkError) as caught:
        go(msgspec.structs.replace(spec, hyper=msgspec.structs.replace(HYPER, **changes)))
    assert caught.value.cause == "user"
    assert what in caught.value.message
    assert "q_proj" in caught.value.advice


def test_training_a_mixture_that_takes_no_dropout_says_so(
    spec: TrainSpec, tiny: tuple[Path, str], tmp_path: Path
) -> None:
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    config = Qwen3MoeConfig(
        vocab_size=49_152,
        hidden_size=16,
        intermediate_size=32,
        moe_intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
    )
    sha256 = random_base(Qwen3MoeForCausalLM(config), tiny[0], tmp_path / "mixture")
    mixture = msgspec.structs.replace(
        spec, base_dir=str(tmp_path / "mixture"), base_sha256=sha256, valid_shards=()
    )
    with pytest.raises(WorkError, match="the experts of tiny-llama take no dropout") as caught:
        go(mixture)
    assert caught.value.cause == "user"
    assert "lora.dropout to 0" in caught.value.advice
