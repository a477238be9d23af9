"""Scores requests with lm-evaluation-harness: `lm_eval_script.py FOLDER THREADS`, offline.

FOLDER has base.json (the path of the base model), adapter/ and requests.json. Prints JSON: seconds
and, for each side and request, the likelihood of each answer.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM


def likelihoods(model: Any, asked: list[dict[str, Any]]) -> list[list[float]]:
    requests = [
        Instance("loglikelihood", {}, (request["context"], f" {choice}"), at)
        for request in asked
        for at, choice in enumerate(request["choices"])
    ]
    values = iter(model.loglikelihood(requests, disable_tqdm=True))
    return [[next(values)[0] for _ in request["choices"]] for request in asked]


def main(folder: Path, threads: int) -> None:
    torch.set_num_threads(threads)
    base = json.loads((folder / "base.json").read_text())
    model = HFLM(
        pretrained=base, peft=str(folder / "adapter"), device="cpu", dtype="float32", batch_size=1
    )
    asked = json.loads((folder / "requests.json").read_text())
    began_s = time.monotonic()
    adapter = likelihoods(model, asked)
    with model.model.disable_adapter():
        base = likelihoods(model, asked)
    seconds = time.monotonic() - began_s
    print(json.dumps({"seconds": seconds, "base": base, "adapter": adapter}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
