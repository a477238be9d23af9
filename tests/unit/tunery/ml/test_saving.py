"""What a checkpoint of a run holds. That a resume from it is exact: test_fine_tuning.py."""

import json
from pathlib import Path

import msgspec
import pytest

from tests.unit.tunery.ml.trainings import HYPER, STEPS, go, of
from tunery.work.spec import TrainSpec

pytestmark = [
    pytest.mark.train,
    # peft 0.21 and trl 1.16 ask transformers 5 by names that are going away
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]


def test_a_checkpoint_holds_the_position_the_losses_and_the_best_weights(spec: TrainSpec) -> None:
    hyper = msgspec.structs.replace(HYPER, best_checkpoint=True)
    _, events = go(msgspec.structs.replace(spec, hyper=hyper, checkpoint_every_steps=4))
    first, last = of(events, "checkpoint")
    assert [(event["step"], event["epoch"]) for event in (first, last)] == [(4, 1.333333), (6, 2.0)]
    assert [file["name"] for file in last["files"]] == [
        "adapter_config.json", "adapter_model.safetensors", "best_adapter.safetensors",
        "optimizer.safetensors", "progress.json", "rng.json", "rng.safetensors",
        "trainer_state.json", "MANIFEST.json",
    ]  # fmt: skip
    progress = json.loads(Path(last["dir"], "progress.json").read_text())
    assert progress["losses"] == [step["loss"] for step in of(events, "step")]
    assert (progress["step"], progress["tokens"]) == (STEPS, last["tokens"])
    assert progress["evaluations"][:2] == [of(events, "eval")[-1]["valid_loss"], STEPS]
