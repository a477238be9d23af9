"""litellm's functions of files, fine-tuning and chat: `litellm_script.py ROWS` prints JSON."""

import json
import os
import sys
import time
from pathlib import Path

import litellm

PROVIDER = {"custom_llm_provider": "openai"}
ENDED = ("succeeded", "failed", "cancelled")


def main(rows: Path) -> dict[str, str]:
    model = os.environ["TUNERY_MODEL"]
    with rows.open("rb") as opened:
        file = litellm.create_file(file=opened, purpose="fine-tune", **PROVIDER)
    assert litellm.file_retrieve(file.id, **PROVIDER).filename == rows.name
    assert file.id in [listed.id for listed in litellm.file_list("openai").data]
    assert litellm.file_content(file.id, **PROVIDER).content == rows.read_bytes()
    create = {"model": model, "training_file": file.id, **PROVIDER}
    job = litellm.create_fine_tuning_job(hyperparameters={"n_epochs": 1}, suffix="lite", **create)
    while (job := litellm.retrieve_fine_tuning_job(job.id, **PROVIDER)).status not in ENDED:
        time.sleep(1)
    second = litellm.create_fine_tuning_job(hyperparameters={"n_epochs": 50}, **create)
    assert litellm.cancel_fine_tuning_job(second.id, **PROVIDER).status == "cancelled"
    listed = [entry.id for entry in litellm.list_fine_tuning_jobs(limit=2, **PROVIDER).data]
    assert listed == [second.id, job.id], listed
    (result,) = job.result_files
    assert litellm.file_content(result, **PROVIDER).text.startswith("step,train_loss")
    spare = litellm.create_file(file=("spare.jsonl", b"{}\n"), purpose="fine-tune", **PROVIDER)
    assert litellm.file_delete(spare.id, **PROVIDER).deleted
    question = {
        "model": f"openai/{job.fine_tuned_model}",
        "messages": [{"role": "user", "content": "Who are you?"}],
        "temperature": 0,
        "max_tokens": 8,
    }
    answer = litellm.completion(**question).choices[0].message.content
    chunks = litellm.completion(**question, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == answer
    return {"job": job.id, "model": job.fine_tuned_model, "answer": answer}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
