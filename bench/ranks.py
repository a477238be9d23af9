"""Tokens a second of one training with one rank and with several: on processors, and on GPUs.

    .venv/bin/python -m bench.ranks --json

The same steps on the same documents (those of `bench.trainer`), a thread for each rank on
processors. A first step is not counted. Where the machine has fewer GPUs than ranks, `gpu` says
that it was not run.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any, Final

from msgspec.structs import replace

from bench.bases import bundled_base
from bench.trainer import documents, hyper_parameters, written_spec
from schemas.training import HyperParameters
from tunery.plan.micro_batches import shared_among
from tunery.ranks.joining import VISIBLE
from tunery.work.codec import decode_event, encode_spec
from tunery.work.events import AnyWorkEvent, StepCompleted
from tunery.work.spec import Hyper, TrainSpec

DOCUMENTS_PER_ROW: Final = 8
LIST_DEVICES: Final = """
import torch
from tunery.ml.device import uuid_of
for number in range(torch.cuda.device_count()):
    print(uuid_of(torch.device("cuda", number)))
"""


def devices_here() -> list[str]:
    """The driver's names of the GPUs of this machine; a process of its own asks for them."""
    command = [sys.executable, "-c", LIST_DEVICES]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def tokens_s(lines: Sequence[bytes]) -> float:
    """Tokens a second of the steps after the first, by the events of a training."""
    events: list[AnyWorkEvent] = [decode_event(line) for line in lines]
    steps = [event for event in events if isinstance(event, StepCompleted)]
    return round(mean(step.tokens_per_s or 0 for step in steps[1:]), 1)


def of_ranks(spec: TrainSpec, hyper: HyperParameters, devices: Sequence[str]) -> TrainSpec:
    """The same steps with a rank on each device; "" is a processor. Raises ValueError."""
    shared = shared_among(hyper, len(devices))
    if shared is None:
        raise ValueError(f"--rows: {hyper.batch_size} are too few for {len(devices)} ranks")
    named = tuple(name for name in devices if name)
    kind = "gpu" if named else "cpu"
    return replace(
        spec,
        out_dir=f"{spec.out_dir}/{kind}-{len(devices)}",
        hyper=Hyper.from_log(shared),
        ranks=len(devices),
        devices=named,
        threads=None if named else 1,
    )


def train(spec: TrainSpec, path: Path) -> float:
    """Tokens a second of one training. Raises RuntimeError when it fails."""
    path.write_bytes(encode_spec(spec))
    command = [sys.executable, "-m", "tunery.ml.train", str(path)]
    environment = {**os.environ, VISIBLE: ",".join(spec.devices)}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(f"{spec.out_dir}: {done.stdout[-500:]!r} {done.stderr[-500:]!r}")
    return tokens_s(done.stdout.splitlines())


def measure(base: Path, hyper: HyperParameters, ranks: int) -> dict[str, Any]:
    """All figures; `gpu` says why there is none of GPUs."""
    figures: dict[str, Any] = {}
    with TemporaryDirectory() as name:
        folder = Path(name)
        rows = documents(DOCUMENTS_PER_ROW * hyper.batch_size * (hyper.max_steps + 1))
        spec = written_spec(base, hyper, folder, rows)
        kinds = {"cpu": [""] * ranks, "gpu": devices_here()}
        for kind, devices in kinds.items():
            if len(devices) < ranks:
                figures[kind] = f"not run: this machine has {len(devices)} GPUs"
                continue
            for count in (1, ranks):
                of_count = of_ranks(spec, hyper, devices[:count])
                figures[f"{kind}_{count}_tokens_s"] = train(of_count, folder / "spec.json")
            alone, shared = (figures[f"{kind}_{count}_tokens_s"] for count in (1, ranks))
            figures[f"{kind}_times_as_fast"] = round(shared / alone, 2)
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rows", type=int, default=4, help="packed rows of a step")
    parser.add_argument("--steps", type=int, default=4, help="the first is not counted")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--adaptation", choices=("lora", "qlora", "full"), default="lora")
    parser.add_argument("--base", type=Path, help="a base model's folder; else the bundled one")
    arguments = parser.parse_args()
    hyper = replace(
        hyper_parameters(arguments.steps, arguments.precision),
        batch_size=arguments.rows,
        adaptation=arguments.adaptation,
    )
    base = bundled_base() if arguments.base is None else arguments.base.absolute()
    figures = measure(base, hyper, arguments.ranks)
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:24} {value}")


if __name__ == "__main__":
    main()
