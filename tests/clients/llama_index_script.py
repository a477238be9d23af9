"""LlamaIndex's `OpenAIFinetuneEngine`, then a question to its model; prints JSON.

Its own check of the rows downloads an encoding from the network, so it is left out.
"""

import json
import os
import sys
import time

from llama_index.finetuning import OpenAIFinetuneEngine

ENDED = ("succeeded", "failed", "cancelled")


def main(rows: str) -> dict[str, str]:
    engine = OpenAIFinetuneEngine(os.environ["TUNERY_MODEL"], rows, validate_json=False)
    engine.finetune()
    while (job := engine.get_current_job()).status not in ENDED:
        time.sleep(1)
    again = OpenAIFinetuneEngine("", "", start_job_id=job.id, validate_json=False)
    address = os.environ["OPENAI_BASE_URL"]  # its models read another variable
    model = again.get_finetuned_model(api_base=address, temperature=0, max_tokens=8)
    return {"job": job.id, "model": model.model, "answer": model.complete("Who are you?").text}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
