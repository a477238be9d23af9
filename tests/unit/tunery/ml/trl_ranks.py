"""TRL on several processes, as `accelerate launch` starts them: the losses of each spec, in order.

Arguments: a file that the first process writes, and one for each spec.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import torch

from tests.unit.tunery.ml.trl_trainers import losses_of, sft_trainer, trl_trainer
from tunery.ml.packed import read_rows
from tunery.work.spec import TrainSpec

VOCABULARY = 100_000


def _trainer_of(spec: TrainSpec, folder: Path) -> Any:
    rows = read_rows(spec.train_shards, vocabulary=VOCABULARY)
    if spec.hyper.method != "supervised":
        steps = len(rows) * spec.hyper.n_epochs // (spec.hyper.batch_size * spec.hyper.accumulation)
        return trl_trainer(spec, rows, folder, steps)
    data = [
        {key: rows.batch([at])[key][0].tolist() for key in ("input_ids", "labels")}
        for at in range(len(rows))
    ]
    return sft_trainer(spec, data, folder)


def main(answer: Path, *specs: Path) -> None:
    torch.set_num_threads(1)
    losses = []
    for path in specs:
        spec = msgspec.json.decode(path.read_bytes(), type=TrainSpec)
        losses.append(losses_of(_trainer_of(spec, path.with_suffix(".trl"))))
    if os.environ["RANK"] == "0":
        answer.write_text(json.dumps(losses))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
