"""Benchmarks in their published form, imported and scored by ours; the harness reads the same."""

import json
from pathlib import Path
from typing import Any, Final

from bench import scoring
from tests.unit.tunery.data.importing import published
from tunery.benchmarks.task import read_task
from tunery.data.importing.formats import import_task

CONTEXT_TOKENS: Final = 2_048
SHOTS: Final = {
    "mmlu": 5,
    "hellaswag": 2,
    "arc": 3,
    "truthfulqa": 0,
    "truthfulqa_mc2": 0,
}  # few: a test reads them
FILES: Final = {
    "mmlu": "mmlu/default/mmlu_anatomy.yaml",
    "hellaswag": "hellaswag/hellaswag.yaml",
    "arc": "arc/arc_challenge.yaml",
    "truthfulqa": "truthfulqa/truthfulqa_mc1.yaml",
    "truthfulqa_mc2": "truthfulqa/truthfulqa_mc2.yaml",
}
Scored = tuple[str, list[float], float]  # context, likelihoods, score: 0 or 1, or a share


def write_tasks(folder: Path) -> dict[str, bytes]:
    """Rows, tasks.json for the harness, and our files of the same benchmarks."""
    rows: dict[str, dict[str, Path]] = {
        "mmlu": {
            "test": published.mmlu_rows(folder / "mmlu_t.jsonl", "test"),
            "dev": published.mmlu_rows(folder / "mmlu_d.jsonl", "dev", 5),
        },
        "hellaswag": {
            "validation": published.hellaswag(folder / "hs_v.jsonl"),
            "train": published.hellaswag(folder / "hs_t.jsonl", first=50),
        },
        "arc": {
            "test": published.arc(folder / "arc_t.jsonl", both=False),
            "train": published.arc(folder / "arc_d.jsonl", both=False, first=50),
        },
        "truthfulqa": {"validation": published.truthfulqa(folder / "tq.jsonl", both=False)},
        "truthfulqa_mc2": {"validation": published.truthfulqa(folder / "mc2.jsonl", both=False)},
    }
    described = [
        {
            "name": name,
            "file": FILES[name],
            "rows": {split: str(path) for split, path in files.items()},
            "shots": SHOTS[name],
            "right": "acc_norm" if name in ("hellaswag", "arc") else "acc",
        }
        for name, files in rows.items()
    ]
    (folder / "tasks.json").write_text(json.dumps(described))
    return {
        name: import_task(name, [tested], examples, SHOTS[name])
        for name, files in rows.items()
        for tested, *examples in [list(files.values())]
    }


def score_tasks(folder: Path, contents: dict[str, bytes]) -> dict[str, list[Scored]]:
    """The adapter's side of each item, read as the gate reads it."""
    from tunery.ml import benchmarks, choices
    from tunery.ml.sides import Pair

    model, tokenizer = scoring.load(folder, 1)
    scored: dict[str, list[Scored]] = {}
    for name, content in contents.items():
        task = read_task(content)
        trees = benchmarks.trees_of(task, tokenizer, CONTEXT_TOKENS)
        with Pair(model).sides(("base", "adapter")) as sides:
            of_sides: Any = choices.likelihoods(sides, trees, benchmarks.groups_of(task))
        picked = benchmarks.pick(of_sides[1], task)
        scored[name] = [
            (
                task.begin(item),
                values,
                (benchmarks.true_share(values, item.true_choices) or 0.0)
                if item.true_choices
                else float(choice == item.answer_index),
            )
            for item, values, choice in zip(task.items, of_sides[1], picked, strict=True)
        ]
    return scored
