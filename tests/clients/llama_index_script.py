"""LlamaIndex's `OpenAIFinetuneEngine`, up to the name of the model, which is printed as JSON.

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
    return {"job": job.id, "model": again.get_finetuned_model().model}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
