"""Bodies of the Tinker SDK: what becomes a command, and what is refused by name."""

import math
from typing import Any

import numpy as np
import pytest

from services.gateway.sessions.bodies import SampleRequest
from services.gateway.sessions.conversions import (
    ModelLimits,
    pass_body,
    pass_output,
    read_pass,
    sample_body,
    sample_output,
)
from services.gateway.sessions.messages import PassOutput, PassRequest, SampleOutput
from services.gateway.web.domain.errors import ApiError
from tunery.work.session import PassAnswer, SampleAnswer, Sequence

LIMITS = ModelLimits(vocabulary=1_000, max_length=16)


def tensor(message: Any, values: list[float], kind: str = "<f4") -> None:
    message.dense = np.array(values, kind).tobytes()
    message.dtype = 1 if kind == "<f4" else 2
    message.shape[:] = [len(values)]


def request(loss: str = "cross_entropy", tokens: int = 3, **inputs: list[float]) -> Any:
    message = PassRequest(model_id="session-1", seq_id=4, loss_fn=loss)
    datum = message.data.add()
    chunk = datum.model_input.add()
    chunk.encoded_text.tokens = np.arange(tokens, dtype="<i4").tobytes()
    tensor(datum.loss_fn_inputs["target_tokens"], [5] * tokens, "<i8")
    for name, values in inputs.items():
        tensor(datum.loss_fn_inputs[name], values)
    return message


def body(message: Any) -> Any:
    return pass_body(read_pass(message.SerializeToString()), LIMITS)


def refusal(message: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        body(message)
    assert caught.value.status == 400
    return caught.value


def test_a_pass_is_read() -> None:
    asked = read_pass(request(weights=[0, 1, 2]).SerializeToString())
    assert (asked.session_id, asked.seq, asked.forward_only) == ("session-1", 4, False)
    command, tokens = pass_body(asked, LIMITS)
    (row,) = command.rows
    assert tokens == 3
    assert np.frombuffer(row.tokens, "<i4").tolist() == [0, 1, 2]
    assert np.frombuffer(row.targets, "<i4").tolist() == [5, 5, 5]
    assert np.frombuffer(row.weights, "<f4").tolist() == [0, 1, 2]
    assert body(request())[0].rows[0].weights == np.ones(3, "<f4").tobytes()


def test_clips_have_usual_values() -> None:
    message = request("ppo", logprobs=[0, 0, 0], advantages=[1, 1, 1])
    message.loss_fn_config_v2["clip_high_threshold"].number = 1.5
    command, _ = body(message)
    assert command.settings == {"clip_low_threshold": 0.8, "clip_high_threshold": 1.5}


def test_a_body_that_is_no_protobuf_is_refused() -> None:
    with pytest.raises(ApiError) as caught:
        read_pass(b"\xff\xff{}")
    assert caught.value.code == "invalid_protobuf"


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (request("gspo"), "loss_fn"),
        (request(tokens=17), "data.0.model_input"),
        (request(tokens=0), "data.0.model_input"),
        (request(weights=[1, 2]), "data.0.loss_fn_inputs.weights"),
        (request(weights=[1, math.nan, 2]), "data.0.loss_fn_inputs.weights"),
        (request(mask=[1, 1, 1]), "data.0.loss_fn_inputs.mask"),
        (
            request("importance_sampling", logprobs=[0] * 3, advantages=[1, math.nan, 1]),
            "data.0.loss_fn_inputs.advantages",
        ),
        (request("ppo", advantages=[1] * 3), "data.0.loss_fn_inputs.logprobs"),
        (request("dro", logprobs=[0] * 3, advantages=[1] * 3), "loss_fn_config.beta"),
    ],
)
def test_bad_input_is_named(message: Any, param: str) -> None:
    assert refusal(message).param == param


def test_tokens_outside_the_vocabulary_are_named() -> None:
    message = request()
    tensor(message.data[0].loss_fn_inputs["target_tokens"], [5, 1_000, 5], "<i8")
    problem = refusal(message)
    assert problem.param == "data.0.loss_fn_inputs.target_tokens"
    assert "1000" in problem.message


def test_images_several_targets_and_unknown_settings_are_refused_by_name() -> None:
    image = request()
    image.data[0].model_input.add().image.data = b"png"
    assert "images" in refusal(image).message
    several = request()
    several.data[0].loss_fn_inputs["target_tokens"].shape.append(2)
    assert "several targets" in refusal(several).message
    setting = request()
    setting.loss_fn_config_v2["temperature"].number = 1
    assert refusal(setting).param == "loss_fn_config.temperature"
    empty = request()
    del empty.data[:]
    assert refusal(empty).param == "data"


def sampling(**params: Any) -> SampleRequest:
    return SampleRequest.model_validate(
        {
            "sampling_session_id": "tinker://session-1/sampler_weights/a#b",
            "seq_id": 0,
            "num_samples": 2,
            "prompt": {"chunks": [{"type": "encoded_text", "tokens": [1, 2]}]},
            "sampling_params": params,
        }
    )


@pytest.mark.parametrize(
    ("stop", "tokens", "texts"),
    [(None, None, ()), ([], (), ()), ([7], (7,), ()), ("a", (), ("a",)), (["a"], (), ("a",))],
)
def test_stops_are_tokens_or_texts(stop: Any, tokens: Any, texts: Any) -> None:
    command, prompt, most = sample_body(sampling(max_tokens=4, stop=stop), 9, LIMITS)
    assert (command.stop_tokens, command.stop_texts, command.seed) == (tokens, texts, 9)
    assert (prompt, most) == (2, 2 * 4)


def test_samples_end_with_the_longest_row() -> None:
    assert sample_body(sampling(), 0, LIMITS)[0].tokens_max == 14


def test_answers_are_what_the_sdk_reads() -> None:
    logprobs = tuple(np.array(values, "<f4").tobytes() for values in ([-1.0, -2.0], [-3.0]))
    output = PassOutput.FromString(pass_output(PassAnswer(logprobs=logprobs, loss=6.0)))
    (record,) = output.loss_fn_outputs
    assert record.num_datums == 2
    assert np.frombuffer(record.fields["logprobs"].offsets, "<i8").tolist() == [0, 8, 12]
    assert dict(output.metrics) == {"loss:sum": 6.0}
    sequence = Sequence(tokens=b"\1\0\0\0", logprobs=logprobs[1], stopped=False)
    sampled = SampleOutput.FromString(sample_output(SampleAnswer(sequences=(sequence,))))
    assert [each.stop_reason for each in sampled.sequences] == [1]
