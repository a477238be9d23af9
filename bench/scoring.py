"""The scorer of the gate compared with a request for each answer, as lm-evaluation-harness makes
them.

    .venv/bin/python -m bench.scoring --json

The bundled 135M model and an adapter with random weights answer bundled questions, each after five
others with their answers. What is measured is the scoring alone, both sides, without loading. The
harness itself runs where its environment is there (`make test-clients` makes it); otherwise its
loop: one forward pass an answer, likelihoods of all columns.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.measures import print_figures
from bench.shapes import bundled_base
from tests.clients.programs import HERE, NoClient, command_of

HARNESS: Final = "lm_eval"
ITEMS: Final = Path(__file__).parents[1] / "tunery" / "ml" / "items" / "capability.jsonl"
SHOTS: Final = 5
RANK: Final = 8
SEED: Final = 7
SPREAD: Final = 0.02  # of the adapter's weights: some answers change


def write_adapter(base: Path, folder: Path) -> None:
    """An adapter on all linear layers, always the same."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(SEED)
    model: Any = get_peft_model(
        AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32),
        LoraConfig(r=RANK, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=SPREAD)
    model.save_pretrained(folder)


def write_requests(count: int, path: Path) -> None:
    """Questions with the same examples before each, in the form of `tunery.ml.choices`."""
    lines = [json.loads(line) for line in ITEMS.read_text(encoding="utf-8").splitlines()]
    shots = "".join(
        f"Question: {line['question']}\nAnswer: {line['choices'][line['answer_index']]}\n\n"
        for line in lines[:SHOTS]
    )
    asked = [
        {"context": f"{shots}Question: {line['question']}\nAnswer:", "choices": line["choices"]}
        for line in lines[SHOTS : SHOTS + count]
    ]
    path.write_text(json.dumps(asked), encoding="utf-8")


def load(folder: Path, threads: int) -> tuple[Any, Any]:
    """The model with its adapter, and its tokenizer."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(threads)
    base = json.loads((folder / "base.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    adapted = PeftModel.from_pretrained(model, folder / "adapter", autocast_adapter_dtype=False)
    return adapted.eval(), AutoTokenizer.from_pretrained(base)


def run_ours(folder: Path, threads: int) -> dict[str, Any]:
    """Seconds and likelihoods of the scorer."""
    from tunery.ml import choices
    from tunery.ml.sides import SIDES, Pair

    model, tokenizer = load(folder, threads)
    asked = json.loads((folder / "requests.json").read_text())
    began_s = time.monotonic()
    trees = [
        choices.tree_of(tokenizer, request["context"], request["choices"]) for request in asked
    ]
    with Pair(model).sides(SIDES) as sides:
        base, adapter = choices.likelihoods(sides, trees, [range(len(trees))])
    return {"seconds": time.monotonic() - began_s, "base": base, "adapter": adapter}


def run_loop(folder: Path, threads: int) -> dict[str, Any]:
    """Seconds and likelihoods of one forward pass an answer, each side by itself."""
    import torch

    model, tokenizer = load(folder, threads)
    asked = json.loads((folder / "requests.json").read_text())
    said: dict[str, Any] = {}
    began_s = time.monotonic()
    for name in ("adapter", "base"):
        if name == "base":
            model = model.unload()
        said[name] = []
        for request in asked:
            context = tokenizer(request["context"]).input_ids
            values = []
            for choice in request["choices"]:
                ids = tokenizer(f"{request['context']} {choice}").input_ids
                with torch.no_grad():
                    logits = model(torch.tensor([ids[:-1]]), use_cache=False).logits[0]
                logs = torch.log_softmax(logits, dim=-1)
                columns = range(len(context) - 1, len(ids) - 1)
                values.append(sum(float(logs[at, ids[at + 1]]) for at in columns))
            said[name].append(values)
    return {"seconds": time.monotonic() - began_s, **said}


def run(*command: str) -> dict[str, Any]:
    """The JSON that a process prints last. Raises RuntimeError with its last words."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[-1]}: {done.stderr[-1000:]}")
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def compare(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, float]:
    """How many times faster, and how much the numbers differ."""
    pairs = [
        (mine, other)
        for name in ("base", "adapter")
        for mine, other in zip(ours[name], theirs[name], strict=True)
    ]
    return {
        "times_faster": round(theirs["seconds"] / ours["seconds"], 1),
        "largest_difference": max(
            abs(a - b) for mine, other in pairs for a, b in zip(mine, other, strict=True)
        ),
        "answers_changed": sum(
            mine.index(max(mine)) != other.index(max(other)) for mine, other in pairs
        ),
    }


def measure(items: int, threads: int) -> dict[str, float]:
    """All figures of one run."""
    dest = bundled_base()
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_adapter(dest, folder / "adapter")
        write_requests(items, folder / "requests.json")
        (folder / "base.json").write_text(json.dumps(str(dest)))
        own = (sys.executable, "-m", "bench.scoring", "--threads", str(threads))
        ours = run(*own, "--run", "ours", "--folder", name)
        try:
            harness = command_of(HARNESS, HERE)
        except NoClient:
            theirs = run(*own, "--run", "loop", "--folder", name)
            beside = {"beside_the_harness": 0}
        else:
            theirs = run(*harness, name, str(threads))
            beside = {"beside_the_harness": 1}
        figures = {"items": items, "ours_s": ours["seconds"], "theirs_s": theirs["seconds"]}
        return {**beside, **figures, **compare(ours, theirs)}


def main() -> None:
    """Measure, or run one of the two in its own process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--items", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--run", choices=("ours", "loop"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        runs = {"ours": run_ours, "loop": run_loop}
        print(json.dumps(runs[arguments.run](arguments.folder, arguments.threads)))
        return
    print_figures(measure(arguments.items, arguments.threads), as_json=arguments.json, digits=6)


if __name__ == "__main__":
    main()
