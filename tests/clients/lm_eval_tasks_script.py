"""Scores tasks of lm-evaluation-harness on local rows: `lm_eval_tasks_script.py FOLDER THREADS`.

FOLDER has base.json (the path of the base model), adapter/ and tasks.json: for each task its name,
file in the harness, rows by split, and number of examples. The tasks are the harness' own; only
their rows, and that examples are the first ones, are ours. Prints JSON: for each task and document
the text that is asked, the likelihood of each answer, and the score that the harness gives.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}

import lm_eval
import torch
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

HARNESS = Path(lm_eval.__file__).parent / "tasks"
LIMIT = 6  # documents of each task


def described(task: dict[str, Any]) -> dict[str, Any]:
    return {
        "include": str(HARNESS / task["file"]),
        "task": f"own_{task['name']}",
        "tag": None,
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": {"data_files": task["rows"]},
        "fewshot_config": {"sampler": "first_n"},
        "num_fewshot": task["shots"],
    }


def of_document(sample: dict[str, Any], right: str) -> dict[str, Any]:
    requests = list(sample["arguments"].values()) if isinstance(sample["arguments"], dict) else []
    contexts = [
        request["arg_0"] if isinstance(request, dict) else request[0]
        for request in requests or sample["arguments"]
    ]
    values = [response[0] for response in sample["filtered_resps"]]
    return {"context": contexts[0], "likelihoods": values, "score": float(sample[right])}


def main(folder: Path, threads: int) -> None:
    torch.set_num_threads(threads)
    tasks = json.loads((folder / "tasks.json").read_text())
    described_in = folder / "described"
    described_in.mkdir()
    for task in tasks:
        (described_in / f"{task['name']}.yaml").write_text(json.dumps(described(task)))
    manager = TaskManager(include_path=str(described_in), include_defaults=False)
    base = json.loads((folder / "base.json").read_text())
    model = HFLM(
        pretrained=base, peft=str(folder / "adapter"), device="cpu", dtype="float32", batch_size=1
    )
    said: dict[str, Any] = {}
    for task in tasks:
        name = f"own_{task['name']}"
        results = lm_eval.simple_evaluate(
            model=model,
            tasks=[name],
            task_manager=manager,
            limit=LIMIT,
            bootstrap_iters=0,
            log_samples=True,
        )
        documents = sorted(results["samples"][name], key=lambda sample: sample["doc_id"])
        said[task["name"]] = [of_document(sample, task["right"]) for sample in documents]
    print(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
