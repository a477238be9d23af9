"""Every event survives its line, and lines that are no event are named."""

from typing import Any, get_args

import msgspec
import pytest

from tests.unit.bench.test_adaptation import SPEC
from tests.unit.tunery.work.samples import CHECKPOINTED, EVENTS
from tunery.work.codec import (
    decode_colocated_event,
    decode_event,
    decode_scores,
    decode_training,
    encode_colocated_event,
    encode_event,
    encode_scores,
    encode_spec,
)
from tunery.work.events import AnyWorkEvent, ColocatedEvent
from tunery.work.scores import HoldoutScores, PromptAnswers, Scores
from tunery.work.spec import ColocatedSpec, VariantsSpec


def test_there_is_a_sample_of_every_event() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(AnyWorkEvent))


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_survives_its_line(event: Any) -> None:
    line = encode_event(event, 1_234)
    assert b"\n" not in line
    assert decode_event(line) == msgspec.structs.replace(event, elapsed_ms=1_234)


def test_an_event_of_one_of_several_trainings_survives_its_line() -> None:
    line = encode_colocated_event("a", CHECKPOINTED, 7)
    timed = msgspec.structs.replace(CHECKPOINTED, elapsed_ms=7)
    assert decode_colocated_event(line) == ColocatedEvent(training="a", event=timed)
    with pytest.raises(msgspec.MsgspecError):
        decode_event(line)  # it is not read as the spec of a process with one training


def test_a_spec_has_one_training_or_several() -> None:
    variants = VariantsSpec(training=SPEC, hypers=(SPEC.hyper, SPEC.hyper))
    for spec in (SPEC, ColocatedSpec(trainings={"a": SPEC, "b": SPEC}), variants):
        assert decode_training(encode_spec(spec)) == spec
    with pytest.raises(msgspec.MsgspecError, match="unknown field `base_id`"):
        decode_training(b'{"trainings": {}, "base_id": "x"}')


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"not JSON", "JSON is malformed"),
        (b'{"step": 1}', "missing required field `type`"),
        (b'{"type": "unheard"}', "Invalid value"),
        (b'{"type": "checkpoint", "step": "x"}', r"Expected `int`, got `str` - at `\$.step`"),
        (b'{"type": "failed", "cause": "mood", "message": "", "advice": ""}', "Invalid enum value"),
    ],
)
def test_a_line_that_is_no_event_is_named(line: bytes, words: str) -> None:
    with pytest.raises(msgspec.MsgspecError, match=words):
        decode_event(line)


def test_fields_of_a_later_version_are_ignored() -> None:
    line = encode_event(CHECKPOINTED, 1)
    assert decode_event(line[:-1] + b',"later": 1}') == decode_event(line)


def test_equal_scores_are_equal_bytes() -> None:
    holdout = HoldoutScores(
        rows=1,
        tokens=2,
        base_loss=1.5,
        adapter_loss=None,
        base_perplexity=4.48,
        adapter_perplexity=None,
        generated=0,
        base_exact=0,
        adapter_exact=0,
    )
    answer = PromptAnswers(prompt="Où ?", base="là", adapter="ici")
    scores = Scores(
        base_sha256="0",
        adapter_sha256="1",
        precision="float32",
        items=(),
        holdout=holdout,
        answers=(answer,),
    )
    data = encode_scores(scores)
    assert decode_scores(data) == scores
    assert encode_scores(decode_scores(data)) == data
    assert data.endswith(b"}\n")
