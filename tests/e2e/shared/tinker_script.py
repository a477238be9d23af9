"""A training loop of a tenant's own, with the unmodified Tinker SDK. Prints JSON lines.

    python tinker_script.py

TUNERY_URL, TUNERY_KEY and TUNERY_MODEL say where, as whom, and on what. In the middle it says so,
and waits for a line: whoever runs it may break something meanwhile.
"""

import json
import os
import sys
from typing import Any

import tinker
from tinker import types

STEPS = 6


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def pause() -> None:
    say(at="half")
    sys.stdin.readline()


def row(number: int) -> list[int]:
    return [100 + (number * 31 + at * 7) % 900 for at in range(9)]


def floats(values: list[float]) -> types.TensorData:
    return types.TensorData(data=values, dtype="float32", shape=[len(values)])


def ints(values: list[int]) -> types.TensorData:
    return types.TensorData(data=values, dtype="int64", shape=[len(values)])


def datum(tokens: list[int], **values: list[float]) -> types.Datum:
    inputs = {name: floats(each) for name, each in values.items()}
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": ints(tokens[1:]), **inputs},
    )


def supervised(service: tinker.ServiceClient, model: tinker.TrainingClient) -> None:
    """Learn four rows by heart, then sample, score, and go on from what was saved."""
    data = [datum(row(number), weights=[1.0] * 8) for number in range(4)]
    losses: list[float] = []
    for step in range(STEPS):
        if step == STEPS // 2:
            pause()
        forward = model.forward_backward(data, "cross_entropy")
        model.optim_step(types.AdamParams(learning_rate=1e-2)).result()
        losses.append(forward.result().metrics["loss:sum"])
    state = model.save_state("learnt").result().path
    path = model.save_weights_for_sampler("learnt").result().path
    sampler = service.create_sampling_client(model_path=path)
    prompt = types.ModelInput.from_ints(row(0)[:4])
    params = types.SamplingParams(max_tokens=5, temperature=0.0)
    (answer,) = sampler.sample(prompt, 1, params).result().sequences
    whole = row(0)[:4] + list(answer.tokens)
    scores = sampler.compute_logprobs(types.ModelInput.from_ints(whole)).result()
    again = model.forward([datum(whole, weights=[1.0] * (len(whole) - 1))], "cross_entropy")
    trained = list(again.result().loss_fn_outputs[0]["logprobs"].data)
    model.load_state_with_optimizer(state).result()
    say(
        model=model.model_id,
        losses=losses,
        tokens=list(answer.tokens),
        sampled=list(answer.logprobs),
        scored=scores[1:],
        trained=trained,
        state=state,
        sampler=path,
    )


def main() -> None:
    service = tinker.ServiceClient(
        base_url=os.environ["TUNERY_URL"], api_key=f"tml-{os.environ['TUNERY_KEY']}"
    )
    listed = service.get_server_capabilities().supported_models
    name = os.environ["TUNERY_MODEL"]
    assert name in [each.model_name for each in listed], listed
    metadata = {"tunery_max_minutes": "20", "tunery_checkpoint_steps": "1"}
    model = service.create_lora_training_client(name, rank=4, seed=5, user_metadata=metadata)
    assert model.get_info().lora_rank == 4
    supervised(service, model)


if __name__ == "__main__":
    main()
