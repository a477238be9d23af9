"""The client of `bench.sessions`, run in an environment with the Tinker SDK; prints JSON.

    python session_client.py STEPS ROWS TOKENS RANK MODELS

TUNERY_URL, TUNERY_KEY and TUNERY_MODEL say where, as whom, and on what. The models take their steps
at the same time.
"""

import itertools
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import tinker
from tinker import types


def datum(number: int, tokens: int) -> types.Datum:
    ids = [100 + (number * 31 + at * 7) % 900 for at in range(tokens + 1)]
    shape = [tokens]
    return types.Datum(
        model_input=types.ModelInput.from_ints(ids[:-1]),
        loss_fn_inputs={
            "target_tokens": types.TensorData(data=ids[1:], dtype="int64", shape=shape),
            "weights": types.TensorData(data=[1.0] * tokens, dtype="float32", shape=shape),
        },
    )


def take_steps(
    model: tinker.TrainingClient, steps: int, rows: int, tokens: int
) -> dict[str, object]:
    """Return the model's id, and the seconds of each step after the first."""
    ended: list[float] = []
    for step in range(steps):
        data = [datum(step * rows + row, tokens) for row in range(rows)]
        forward = model.forward_backward(data, "cross_entropy")
        model.optim_step(types.AdamParams(learning_rate=1e-4)).result()
        forward.result()
        ended.append(time.monotonic())
    steps_s = [after - before for before, after in itertools.pairwise(ended)]
    return {"model": model.model_id, "steps_s": steps_s}


def main(steps: int, rows: int, tokens: int, rank: int, count: int) -> list[dict[str, object]]:
    """Create the models, then take the steps of all at once."""
    key = f"tml-{os.environ['TUNERY_KEY']}"
    service = tinker.ServiceClient(base_url=os.environ["TUNERY_URL"], api_key=key)

    def create(seed: int) -> tinker.TrainingClient:
        return service.create_lora_training_client(
            os.environ["TUNERY_MODEL"],
            rank=rank,
            seed=seed,
            user_metadata={"tunery_max_minutes": "20"},
        )

    with ThreadPoolExecutor(count) as threads:
        models = list(threads.map(create, range(count)))
        taking = [threads.submit(take_steps, model, steps, rows, tokens) for model in models]
        return [each.result() for each in taking]


if __name__ == "__main__":
    print(json.dumps(main(*map(int, sys.argv[1:]))))
