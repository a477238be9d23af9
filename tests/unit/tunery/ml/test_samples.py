"""Answers to the user's prompts during a training change nothing of it."""

import msgspec
import pytest

from tests.unit.tunery.ml.trainings import HYPER, figures, go, of, resumed
from tunery.work.spec import TrainSpec

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]
PROMPTS = ("Who are you?", "Where?")


@pytest.mark.parametrize("own", [{}, {"recompute": True, "neftune": 5.0}], ids=["plain", "noise"])
def test_training_with_answers_to_prompts_ends_in_the_same_bytes(
    spec: TrainSpec, own: dict[str, object]
) -> None:
    """With dropout, which draws random numbers in each step."""
    spec = msgspec.structs.replace(spec, hyper=msgspec.structs.replace(HYPER, **own))
    _, without = go(spec)
    hyper = msgspec.structs.replace(spec.hyper, sample_every_steps=2)
    asked = msgspec.structs.replace(spec, hyper=hyper, prompts=PROMPTS)
    _, sampling = go(resumed(asked, out="sampling"))
    samples = of(sampling, "sample")
    assert [event["step"] for event in samples] == [2, 2, 4, 4, 6, 6]
    assert [event["prompt"] for event in samples[:2]] == list(PROMPTS)
    assert all(isinstance(event["answer"], str) for event in samples)
    assert figures(of(sampling, "step")) == figures(of(without, "step"))
    assert sampling[-1]["adapter_sha256"] == without[-1]["adapter_sha256"]
    checkpoint = of(sampling, "checkpoint")[2]
    _, rest = go(resumed(spec, checkpoint, out="rest"))
    assert (rest[0]["resumed_from_step"], rest[0]["skipped"]) == (checkpoint["step"], [])
    assert rest[-1]["adapter_sha256"] == without[-1]["adapter_sha256"]
