"""Times the gate with all that a tenant can ask of it, compared with its promise of 30 minutes.

    .venv/bin/python -m bench.evaluation --json [--rows 64]

The bundled 135M model and an adapter with random weights, in a fork of a process that has loaded
the libraries and has not scored the base model before: the bundled questions and prompts, the loss
of validation rows, and as many rows of the tenant as may be measured, which both sides answer with
as many tokens as an answer may have. A random adapter seldom ends an answer early, so this is close
to the most. Benchmarks of the operator take their own time.
"""

import argparse
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.measures import print_figures
from bench.scoring import write_adapter
from bench.shapes import bundled_base
from bench.trainer import documents, follow_forked, write_shard
from services.gateway.jobs.domain.requested import MEASURED_ROWS_MAX
from tunery.measures.declaration import MEASURES_MAX, NAMES
from tunery.platform.blobs.base_files import hash_base
from tunery.work.spec import MEASURED_TOKENS_MAX, ScoreSpec

PROMISED_S: Final = 30 * 60
PROMPT_TOKENS: Final = 64


def write_rows(base: Path, path: Path) -> None:
    """Rows whose references are as long as an answer may be, each with its own prompt."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(base)
    wanted = documents(2 * MEASURED_ROWS_MAX)
    lines = []
    for number in range(MEASURED_ROWS_MAX):
        prompt, answer = wanted[2 * number : 2 * number + 2]
        ids = (prompt * PROMPT_TOKENS)[:PROMPT_TOKENS]
        reference = tokenizer.decode((answer * MEASURED_TOKENS_MAX)[: 2 * MEASURED_TOKENS_MAX])
        line = {"row": number, "prompt": tokenizer.decode(ids), "prompt_ids": ids}
        lines.append(json.dumps({**line, "reference": reference}) + "\n")
    path.write_text("".join(lines), encoding="utf-8")


def measure(threads: int, measured: int) -> dict[str, float]:
    """Seconds of the whole evaluation, and its rows."""
    base = bundled_base()
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_adapter(base, folder / "adapter")
        write_rows(base, folder / "validation.jsonl")
        write_shard(documents(256), folder / "valid.safetensors")
        spec = ScoreSpec(
            base_dir=str(base),
            base_sha256=hash_base(base),
            adapter_dir=str(folder / "adapter"),
            out=str(folder / "scores.json"),
            valid_shards=(str(folder / "valid.safetensors"),),
            valid_rows=str(folder / "validation.jsonl"),
            precision="fp32",
            threads=threads,
            base_scores_dir=str(folder / "base-scores"),
            measures=json.dumps(list(NAMES)[:MEASURES_MAX]),
            measured_rows=measured,
        )
        _, took_s = follow_forked("tunery.ml.score", spec, folder)
        rows = json.loads((folder / "scores.json").read_text())["rows"]
    return {
        "evaluation_s": round(took_s, 1),
        "share_of_promise": round(took_s / PROMISED_S, 3),
        "measured_rows": len(rows),
        "cut_answers": sum(row["base_cut"] + row["adapter_cut"] for row in rows),
    }


def main() -> None:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, default=MEASURED_ROWS_MAX, help="that are measured")
    arguments = parser.parse_args()
    figures = measure(arguments.threads, arguments.rows)
    print_figures(figures, as_json=arguments.json, goal="share_of_promise < 1")


if __name__ == "__main__":
    main()
