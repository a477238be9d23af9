"""Measures the cost of one setting: tokens for each second of processor time, and peak memory.

    .venv/bin/python -m bench.adaptation --json

The bundled 135M model on one thread, on the documents of `bench.trainer`. Each setting is trained
for one step and for some more; what the first took of the processor is subtracted, so that neither
the start nor other work on the machine counts.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from msgspec.structs import replace

from bench.measures import print_figures
from bench.shapes import bundled_base
from bench.trainer import ROWS, documents, hyper_parameters, write_shard
from tunery.ml.base import MODEL_ID
from tunery.platform.blobs.base_files import hash_base
from tunery.work.codec import decode_event, encode_spec
from tunery.work.events import StepCompleted
from tunery.work.spec import Hyper, TrainSpec

DOCUMENTS_PER_ROW: Final = 8
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "lora_fp32": {"precision": "fp32"},
    "qlora_fp32": {"precision": "fp32", "adaptation": "qlora"},
    "lora_bf16": {"precision": "bf16"},
    "qlora_bf16": {"precision": "bf16", "adaptation": "qlora"},
    "recompute_fp32": {"precision": "fp32", "recompute": True},
    "unpacked_fp32": {"precision": "fp32", "packing": False},
    "full_fp32": {"precision": "fp32", "adaptation": "full"},
    "dora_fp32": {"precision": "fp32", "dora": True},
}


def figures_of(name: str, cpu_s: float, tokens: int, peak_bytes: int) -> dict[str, float]:
    """Figures of one setting, by what its steps after the first took."""
    return {
        f"{name}_tokens_cpu_s": round(tokens / cpu_s, 1),
        f"{name}_peak_mb": round(peak_bytes / 1e6),
    }


def train(spec: TrainSpec, path: Path) -> tuple[float, list[StepCompleted]]:
    """Processor seconds and steps of one process. Raises RuntimeError when it fails."""
    path.write_bytes(encode_spec(spec))
    with path.with_suffix(".events").open("wb") as events:
        process = subprocess.Popen([sys.executable, "-m", "tunery.ml.train", path], stdout=events)
        _, status, use = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    lines = path.with_suffix(".events").read_bytes().splitlines()
    if process.returncode:
        raise RuntimeError(f"{path.name}: status {process.returncode}, {lines[-1:]!r}")
    steps = [event for event in map(decode_event, lines) if isinstance(event, StepCompleted)]
    return use.ru_utime + use.ru_stime, steps


def of_setting(spec: TrainSpec, name: str, steps: int) -> TrainSpec:
    """Return the same training with one setting, in a separate folder."""
    log = replace(hyper_parameters(steps, "fp32"), **SETTINGS[name])
    out = f"{spec.out_dir}/{name}-{steps}"
    return replace(spec, hyper=Hyper.from_log(log), precision=log.precision, out_dir=out)


def measure(steps: int, names: list[str]) -> dict[str, float]:
    """Figures of each setting."""
    dest = bundled_base()
    figures: dict[str, float] = {}
    with TemporaryDirectory() as folder:
        shard = Path(folder) / "train.safetensors"
        write_shard(documents(DOCUMENTS_PER_ROW * ROWS * (steps + 1)), shard)
        spec = TrainSpec(
            base_dir=str(dest),
            base_id=MODEL_ID,
            base_sha256=hash_base(dest),
            train_shards=(str(shard),),
            out_dir=folder,
            hyper=Hyper.from_log(hyper_parameters(1, "fp32")),
            threads=1,
            checkpoint_every_steps=10_000,
        )
        for name in names:
            first_s, _ = train(of_setting(spec, name, 1), Path(folder) / "first.json")
            whole_s, done = train(of_setting(spec, name, 1 + steps), Path(folder) / "whole.json")
            tokens = done[-1].tokens - done[0].tokens
            figures |= figures_of(name, whole_s - first_s, tokens, done[-1].memory_bytes or 0)
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--steps", type=int, default=6, help="beside the first")
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    arguments = parser.parse_args()
    print_figures(measure(arguments.steps, arguments.only), as_json=arguments.json, digits=1)


if __name__ == "__main__":
    main()
