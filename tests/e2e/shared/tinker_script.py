"""Training loops of a tenant's own, with the unmodified Tinker SDK. Prints JSON lines.

    python tinker_script.py supervised | rewarded | capped | losses | afterwards

TUNERY_URL, TUNERY_KEY and TUNERY_MODEL say where, as whom, and on what. In the middle it says so,
and waits for a line: whoever runs it may break something meanwhile.
"""

import json
import os
import sys
from typing import Any

if sys.argv[1] == "losses":  # torch, which the SDK loads where there is one
    sys.path.append(os.environ["TUNERY_PACKAGES"])  # after its own packages

import tinker
from tinker import types

STEPS = 6
LESSON_RATE = 5e-3
LESSONS, ANSWERS, ANSWER = 12, 16, 4  # steps, samples of each, tokens of a sample


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


def learn(model: tinker.TrainingClient) -> float:
    """Take a step on four rows; their loss."""
    data = [datum(row(number), weights=[1.0] * 8) for number in range(4)]
    forward = model.forward_backward(data, "cross_entropy")
    model.optim_step(types.AdamParams(learning_rate=1e-2)).result()
    loss: float = forward.result().metrics["loss:sum"]
    return loss


def supervised(service: tinker.ServiceClient, model: tinker.TrainingClient) -> None:
    """Learn four rows by heart, then sample, score, and go on from what was saved."""
    losses: list[float] = []
    for step in range(STEPS):
        if step == STEPS // 2:
            pause()
        losses.append(learn(model))
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


def capped(_: tinker.ServiceClient, model: tinker.TrainingClient) -> None:
    """Take more steps than the session has tokens for, and then more than it has time for."""
    losses = [learn(model) for _ in range(STEPS)]
    pause()
    losses += [learn(model) for _ in range(STEPS)]
    say(model=model.model_id, losses=losses, state=model.save_state("end").result().path)


def losses(_: tinker.ServiceClient, model: tinker.TrainingClient) -> None:
    """Compute each loss, and then take a step with one that is computed here."""
    import torch

    data = [datum(row(number), weights=[1.0] * 8) for number in range(4)]
    scored = model.forward(data, "cross_entropy").result()
    sums = {"cross_entropy": scored.metrics["loss:sum"]}
    drawn = [
        datum(row(number), logprobs=list(each["logprobs"].data), advantages=[1.0] * 8)
        for number, each in enumerate(scored.loss_fn_outputs)
    ]
    for name, settings in (
        ("importance_sampling", None),
        ("ppo", {"clip_low_threshold": 0.9}),
        ("cispo", None),
        ("dro", {"beta": 0.5}),
    ):
        sums[name] = model.forward(drawn, name, settings).result().metrics["loss:sum"]

    def own(_: Any, logprobs: list[Any]) -> tuple[Any, dict[str, float]]:
        loss = -torch.cat(logprobs).sum()
        return loss, {"own": loss.item()}

    metrics = model.forward_backward_custom(data, own).result().metrics
    model.optim_step(types.AdamParams(learning_rate=1e-2)).result()
    after = model.forward(data, "cross_entropy").result().metrics["loss:sum"]
    say(model=model.model_id, sums=sums, own=metrics["own"], sent=metrics["loss:sum"], after=after)


def afterwards(service: tinker.ServiceClient) -> None:
    """Sample as `supervised` does from what it has saved, and score that with the base model."""
    path, base = json.loads(os.environ["TUNERY_METADATA"])["path"], os.environ["TUNERY_MODEL"]
    prompt = row(0)[:4]
    params = types.SamplingParams(max_tokens=5, temperature=0.0)
    sampler = service.create_sampling_client(model_path=path)
    (answer,) = sampler.sample(types.ModelInput.from_ints(prompt), 1, params).result().sequences
    whole = types.ModelInput.from_ints(prompt + list(answer.tokens))
    say(
        tokens=list(answer.tokens),
        sampled=list(answer.logprobs),
        scored=sampler.compute_logprobs(whole).result()[1:],
        of_base=service.create_sampling_client(base_model=base)
        .compute_logprobs(whole)
        .result()[1:],
    )


def rewarded(_: tinker.ServiceClient, model: tinker.TrainingClient) -> None:
    """Learn by rewards alone to answer with tokens whose number can be divided by four."""
    prompt = row(0)[:4]
    rewards: list[float] = []
    for step in range(LESSONS):
        if step == LESSONS // 2:
            pause()
        sampler = model.save_weights_and_get_sampling_client()
        params = types.SamplingParams(max_tokens=ANSWER, top_k=8, seed=step, stop=[])
        drawn = sampler.sample(types.ModelInput.from_ints(prompt), ANSWERS, params).result()
        scores = [
            sum(token % 4 == 0 for token in answer.tokens) / ANSWER for answer in drawn.sequences
        ]
        mean = sum(scores) / len(scores)
        rewards.append(mean)
        data = []
        for answer, score in zip(drawn.sequences, scores, strict=True):
            skipped = [0.0] * (len(prompt) - 1)
            data.append(
                datum(
                    prompt + list(answer.tokens),
                    logprobs=skipped + list(answer.logprobs),
                    advantages=skipped + [score - mean] * len(answer.tokens),
                )
            )
        model.forward_backward(data, "importance_sampling")
        model.optim_step(types.AdamParams(learning_rate=LESSON_RATE)).result()
    say(model=model.model_id, rewards=rewards, state=model.save_state("end").result().path)


def main() -> None:
    service = tinker.ServiceClient(
        base_url=os.environ["TUNERY_URL"], api_key=f"tml-{os.environ['TUNERY_KEY']}"
    )
    if sys.argv[1] == afterwards.__name__:
        afterwards(service)
        return
    listed = service.get_server_capabilities().supported_models
    name = os.environ["TUNERY_MODEL"]
    assert name in [each.model_name for each in listed], listed
    metadata = {"tunery_max_minutes": "20", "tunery_checkpoint_steps": "1"}
    metadata |= json.loads(os.environ.get("TUNERY_METADATA", "{}"))
    model = service.create_lora_training_client(name, rank=4, seed=5, user_metadata=metadata)
    assert model.get_info().lora_rank == 4
    STORIES[sys.argv[1]](service, model)


STORIES = {each.__name__: each for each in (supervised, capped, rewarded, losses)}

if __name__ == "__main__":
    main()
