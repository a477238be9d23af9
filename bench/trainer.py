"""The trainer compared with plain TRL: the same documents, weights, threads and arithmetic in one
run.

    .venv/bin/python -m bench.trainer --json

Documents have lognormal lengths around 74 tokens, as chats have, and half of each is labelled. TRL
runs twice: padded, four documents for each of our rows, and packed as tightly as it can. Tokens are
real ones, a first step is not counted. With `--base` of `bench.shapes`, `--batch 8` and bf16 it
measures a GPU. Both sides compute without dropout, and with recompute or without.

On a GPU there are also TRL with the kernels of Liger, where that is installed, and for each one its
MFU: the arithmetic of the model, 4 FLOP for each token and weight of the base's matrices and 6 for
each of the adapter's, without attention and without what is computed twice, in percent of what the
GPU's maker says that it does in bf16.

Ours starts as on a node that has trained with these settings before: in a fork of a process that
has loaded the libraries, without a trial step. `start_first_s` is what it takes where nothing has
been shown yet. An evaluation is a fork too: `evaluation_first_s` where the base model has not been
scored yet, and `evaluation_s` where it has.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from bench.measures import print_figures
from bench.shapes import bundled_base
from schemas.model import Base
from schemas.training import Device, HyperParameters
from services.gateway.models.base_folders import describe
from services.trainer.adapters.forks import WorkForks
from services.trainer.adapters.processes import MARK, ProcessGroups
from services.trainer.effect.environment import environment_on
from tunery.data.tokens.packing import pack
from tunery.ml.base import MODEL_ID
from tunery.ml.process import NICENESS
from tunery.plan.memory import CONTEXT_BYTES, LORA_TENTHS, memory_bytes
from tunery.platform.blobs.base_files import hash_base
from tunery.ranks.launching import VISIBLE
from tunery.work.codec import decode_event, encode_spec
from tunery.work.events import AnyWorkEvent, Checkpointed, Finished, Started, StepCompleted
from tunery.work.orders import WorkModule
from tunery.work.spec import Hyper, ScoreSpec, TrainSpec

CAPACITY: Final = 512  # tokens of a packed row, unless `--capacity` says otherwise
MEDIAN: Final = 74  # tokens of a document in such a row
SPREAD: Final = 0.8
ROWS: Final = 2  # packed rows of a step, unless `--batch` says otherwise
PADDED_FOR_EACH: Final = 4  # documents of a padded step, for each packed row of ours
SEED: Final = 11
PEERS: Final = ("packed", "padded")  # of plain TRL
LIGER: Final = "liger"  # TRL that packs, with the kernels of Liger
TRAIN: Final = "tunery.ml.train"
EVERY: Final = 2  # steps between checkpoints: on a fast GPU one is still written when one step ends
TOKEN_IDS: Final = 40_000
# Dense bf16 of a GPU by a part of its name: data sheets of NVIDIA.
FLOP_S: Final = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L40S": 362e12}


def documents(count: int, capacity: int = CAPACITY) -> list[list[int]]:
    """Made-up token ids; always the same. Longer rows have longer documents, and as many."""
    random = np.random.default_rng(SEED)
    median = MEDIAN * capacity // CAPACITY
    lengths = np.exp(random.normal(np.log(median), SPREAD, count)).astype(int).clip(8, capacity)
    return [random.integers(5, TOKEN_IDS, length).tolist() for length in lengths]


def write_shard(rows: list[list[int]], path: Path, capacity: int = CAPACITY) -> None:
    """Pack documents as the pipeline does."""
    import torch
    from safetensors.torch import save_file

    packing = pack([len(row) for row in rows], capacity)
    ordered = [rows[number] for number in packing.sequences.tolist()]
    mask = [int(2 * at >= len(row)) for row in ordered for at in range(len(row))]
    tensors = {
        "input_ids": torch.tensor([token for row in ordered for token in row], dtype=torch.int32),
        "loss_mask": torch.tensor(mask, dtype=torch.uint8),
        "seq_lengths": torch.tensor([len(row) for row in ordered], dtype=torch.int32),
        "row_lengths": torch.tensor(packing.sizes, dtype=torch.int32),
    }
    save_file(tensors, path)


def hyper_parameters(steps: int, precision: Any) -> HyperParameters:
    """Return the hyper-parameters of our run; TRL's run has equal ones."""
    return HyperParameters(
        n_epochs=1,
        batch_size=ROWS,
        learning_rate_ppb=1_000_000,
        rank=16,
        alpha=32,
        dropout_ppm=0,
        warmup_ppm=0,
        weight_decay_ppm=0,
        max_length=CAPACITY,
        seed=SEED,
        precision=precision,
        max_steps=steps,
    )


def written_spec(
    base: Path, hyper: HyperParameters, folder: Path, rows: list[list[int]]
) -> TrainSpec:
    """A training on these documents, whose files are in a folder; checkpoints only at its end."""
    write_shard(rows, folder / "train.safetensors", hyper.max_length)
    return TrainSpec(
        base_dir=str(base),
        base_id=MODEL_ID,
        base_sha256=hash_base(base),
        train_shards=(str(folder / "train.safetensors"),),
        out_dir=str(folder / "out"),
        hyper=Hyper.from_log(hyper),
        precision=hyper.precision,
        checkpoint_every_steps=10_000,
    )


def follow_forked(
    module: WorkModule, spec: TrainSpec | ScoreSpec, folder: Path
) -> tuple[list[AnyWorkEvent], float]:
    """The events of a process, and its seconds. As `run_forked`."""
    lines, took_s = run_forked(module, encode_spec(spec), folder)
    return [decode_event(line) for line in lines], took_s


def run_forked(module: WorkModule, spec: bytes, folder: Path) -> tuple[list[bytes], float]:
    """The lines of a process forked from one that had loaded its libraries, and its seconds.

    Raises RuntimeError with its last words when it fails.
    """
    path = folder / "spec.json"
    path.write_bytes(spec)
    return asyncio.run(_run_forked((sys.executable, "-m", module), path))


async def _run_forked(program: tuple[str, ...], path: Path) -> tuple[list[bytes], float]:
    folder, environment = path.parent, environment_on(os.environ.get(VISIBLE, "").split(","))
    forks = WorkForks(environment, folder / "forks", {MARK: str(folder)})
    groups = ProcessGroups(str(folder), forks=forks)
    loaded = await groups.start((*program, str(folder / "none.json")), environment, folder)
    await loaded.wait()
    began_s = time.monotonic()
    process = await groups.start((*program, str(path)), environment, folder)
    lines = [line async for line in process.lines()]
    status, took_s = await process.wait(), time.monotonic() - began_s
    await groups.sweep()
    if status:
        raise RuntimeError(f"{program[-1]}: {lines[-1:]} {process.error_tail()[-500:]}")
    return lines, took_s


def plain_trl(kind: str, folder: Path, threads: int, hyper: HyperParameters) -> float:
    """Tokens a second of TRL in its own process."""
    command = [sys.executable, "-m", "bench.trainer", "--trl", kind, "--folder", str(folder)]
    command += ["--steps", str(hyper.max_steps), "--threads", str(threads)]
    command += ["--precision", hyper.precision, "--batch", str(hyper.batch_size)]
    command += ["--capacity", str(hyper.max_length), *(["--recompute"] if hyper.recompute else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"TRL {kind}: {done.stderr[-1000:]}")
    return float(done.stdout.splitlines()[-1])


def run_trl(kind: str, folder: Path, threads: int, hyper: HyperParameters) -> float:
    """Train with nothing but TRL and PEFT; real tokens a second after the first step."""
    steps, rows_at_once = hyper.max_steps, hyper.batch_size
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import SFTConfig, SFTTrainer

    os.nice(NICENESS)  # as ours: else other work on the machine would slow ours alone
    torch.set_num_threads(threads)
    base = json.loads((folder / "base.json").read_text())
    rows = json.loads((folder / "documents.json").read_text())
    labels = [[-100] * (len(row) // 2) + row[len(row) // 2 :] for row in rows]
    times: list[float] = []
    tokens: list[int] = []

    class Watch(TrainerCallback):  # type: ignore[misc]  # transformers is untyped
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            times.append(-time.monotonic())

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            times[-1] += time.monotonic()

    dtype = torch.bfloat16 if hyper.precision == "bf16" else torch.float32
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(base, dtype=dtype, attn_implementation="sdpa"),
        args=SFTConfig(
            output_dir=str(folder / kind),
            max_steps=steps,
            per_device_train_batch_size=rows_at_once * (PADDED_FOR_EACH if kind == "padded" else 1),
            packing=kind != "padded",
            max_length=hyper.max_length,
            learning_rate=1e-3,
            bf16=False,
            gradient_checkpointing=hyper.recompute,
            use_liger_kernel=kind == LIGER,
            use_cpu=not torch.cuda.is_available(),
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_dict({"input_ids": rows, "labels": labels}),
        processing_class=AutoTokenizer.from_pretrained(base),
        peft_config=LoraConfig(
            r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
        callbacks=[Watch()],
    )
    collate = trainer.data_collator

    def counted(examples: list[dict[str, Any]]) -> Any:
        tokens.append(sum(len(example["input_ids"]) for example in examples))
        return collate(examples)

    trainer.data_collator = counted
    trainer.train()
    return sum(tokens[1:steps]) / sum(times[1:steps])


def peers() -> tuple[str, ...]:
    """Return the trainers to compare with on this machine: Liger's kernels are for GPUs."""
    import torch

    has_liger = torch.cuda.is_available() and find_spec("liger_kernel") is not None
    return (*PEERS, LIGER) if has_liger else PEERS


def of_peak(key: str, base: Base, rank: int, tokens_s: float) -> dict[str, float]:
    """The MFU under a key, see above; nothing on another device."""
    import torch

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    flop_s = next((rate for part, rate in FLOP_S.items() if part in name), None)
    if flop_s is None:
        return {}
    multiplied = base.parameters - base.vocabulary * base.hidden_size
    adapter = LORA_TENTHS * base.parameters * rank // (10 * base.hidden_size)
    return {key: round(100 * tokens_s * (4 * multiplied + 6 * adapter) / flop_s, 1)}


def measure(
    dest: Path,
    threads: int,
    hyper: HyperParameters,
    *,
    evaluates: bool,
    beside: Sequence[str],
) -> dict[str, float]:
    """All figures of one run. dest: the folder of the base model; beside: of `peers`"""
    from bench.colocated import compare  # which needs what is above
    from tunery.ml.device import pick_device

    base = describe(MODEL_ID, dest, "")
    device: Device = "cuda" if pick_device().type == "cuda" else "cpu"
    with TemporaryDirectory() as name:
        folder = Path(name)
        count = 4 * PADDED_FOR_EACH * hyper.batch_size * (hyper.max_steps + 1)
        rows = documents(count, hyper.max_length)
        (folder / "documents.json").write_text(json.dumps(rows))
        (folder / "base.json").write_text(json.dumps(str(dest)))
        spec = replace(
            written_spec(dest, hyper, folder, rows),
            threads=threads,
            checkpoint_every_steps=EVERY,
            proof_dir=str(folder / "proofs"),
        )
        short = replace(spec, hyper=replace(spec.hyper, max_steps=1), out_dir=str(folder / "short"))
        first = of_training(follow_forked(TRAIN, short, folder)[0])
        figures = of_training(follow_forked(TRAIN, spec, folder)[0])
        figures["start_first_s"] = first["start_s"]
        adapter = figures.pop("adapter_dir")
        estimated = memory_bytes(base, hyper, device)
        peak = figures.pop("peak_bytes") + (CONTEXT_BYTES if device == "cuda" else 0)
        figures["memory_error_pct"] = round(100 * abs(estimated / peak - 1), 1)
        figures |= of_peak("mfu_percent", base, hyper.rank, figures["tokens_s"])
        for kind in beside if hyper.adaptation == "lora" else ():
            speed = plain_trl(kind, folder, threads, hyper)
            figures[f"trl_{kind}_tokens_s"] = round(speed, 1)
            figures |= of_peak(f"trl_{kind}_mfu_percent", base, hyper.rank, speed)
            ratio = figures["tokens_s"] / speed
            figures[f"tokens_ratio_to_trl_{kind}"] = round(ratio, 2)
        if evaluates:
            score = ScoreSpec(
                base_dir=str(dest),
                base_sha256=spec.base_sha256,
                adapter_dir=adapter,
                out=str(folder / "scores.json"),
                precision=hyper.precision,
                threads=threads,
                base_scores_dir=str(folder / "base-scores"),
            )
            for key in ("evaluation_first_s", "evaluation_s"):
                _, took_s = follow_forked("tunery.ml.score", score, folder)
                figures[key] = round(took_s, 1)
        if hyper.adaptation == "lora":
            figures |= compare(spec, folder)
    return figures


def of_training(events: list[AnyWorkEvent]) -> dict[str, Any]:
    """Return the figures of our process.

    start_s: time from the fork to the first step that it could take
    stall_ms: the longest that the training stood still for a checkpoint
    """
    steps = [event for event in events if isinstance(event, StepCompleted)]
    (started,) = (event for event in events if isinstance(event, Started))
    (finished,) = (event for event in events if isinstance(event, Finished))
    stalls = [event.write_ms for event in events if isinstance(event, Checkpointed)]
    return {
        "tokens_s": round(mean(step.tokens_per_s or 0 for step in steps[1:] or steps), 1),
        "stall_ms": max(stalls),
        "start_s": round(started.elapsed_ms / 1000, 1),
        "peak_bytes": steps[-1].memory_bytes,
        "adapter_dir": finished.adapter_dir,
    }


def main() -> None:
    """Measure, or train one of TRL's runs in its own process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--steps", type=int, default=5, help="of each run; the first is not counted"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--base", type=Path, help="a base model's folder; else the bundled one")
    parser.add_argument(
        "--adaptation", choices=("lora", "qlora", "full"), default="lora", help="TRL: lora alone"
    )
    parser.add_argument("--batch", type=int, default=ROWS, help="packed rows of a step, as TRL's")
    parser.add_argument("--no-evaluation", action="store_true", help="some minutes shorter")
    parser.add_argument("--capacity", type=int, default=CAPACITY, help="tokens of a packed row")
    parser.add_argument("--recompute", action="store_true", help="activations, on both sides")
    parser.add_argument("--beside", nargs="*", help="some of: packed padded liger; else all")
    parser.add_argument("--trl", choices=(*PEERS, LIGER), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    hyper = hyper_parameters(arguments.steps, arguments.precision)
    hyper = replace(
        hyper,
        batch_size=arguments.batch,
        adaptation=arguments.adaptation,
        max_length=arguments.capacity,
        recompute=arguments.recompute,
    )
    if arguments.trl:
        print(run_trl(arguments.trl, arguments.folder, arguments.threads, hyper))
        return
    base = bundled_base() if arguments.base is None else arguments.base.absolute()
    beside = peers() if arguments.beside is None else arguments.beside
    evaluates = not arguments.no_evaluation
    figures = measure(base, arguments.threads, hyper, evaluates=evaluates, beside=beside)
    print_figures(figures, as_json=arguments.json)


if __name__ == "__main__":
    main()
