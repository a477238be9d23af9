"""W&B's `WandbLogger.sync` reads an ended job, without its server: figures stay in a local run.

`wandb_script.py ROWS` trains a model with the `openai` package first; it prints JSON.
"""

import json
import os
import sys
from pathlib import Path

import openai
from wandb.integration.openai.fine_tuning import WandbLogger

FIGURES = ("train_loss", "train_accuracy", "fine_tuned_model")


def main(rows: Path) -> dict[str, str]:
    client = openai.OpenAI()
    file = client.files.create(file=rows, purpose="fine-tune")
    job = client.fine_tuning.jobs.create(
        model=os.environ["TUNERY_MODEL"],
        training_file=file.id,
        method={"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 1}}},
    )
    WandbLogger._logged_in = True  # there is no account: nothing is sent
    said = WandbLogger.sync(job.id, openai_client=client, project="lamps", log_datasets=False)
    assert "completed successfully" in said
    model = str(client.fine_tuning.jobs.retrieve(job.id).fine_tuned_model)
    (run,) = Path("wandb").glob("offline-run-*/*.wandb")
    written = run.read_bytes()
    for name in (*FIGURES, model, file.id):
        assert name.encode() in written, name
    return {"job": job.id, "model": model}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
