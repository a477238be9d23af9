"""Tokens a second of one training with one rank and with several: on processors, and on GPUs.

    .venv/bin/python -m bench.ranks --json

The same steps on the same documents (those of `bench.trainer`), with the engine that the plan
chooses or `--engine`; ranks start as a node's agent starts them. Processors have a thread for each
rank. A first step is not counted. Where the machine has fewer GPUs than ranks, `gpu` says that it
was not run.
"""

import argparse
import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any, Final

from msgspec.structs import replace

from bench.measures import print_figures
from bench.shapes import bundled_base
from bench.trainer import documents, hyper_parameters, written_spec
from schemas.training import HyperParameters
from services.trainer.adapters.processes import ERRORS, ProcessGroups, Walls
from services.trainer.effect.program import access_of
from tunery.plan.micro_batches import shared_among
from tunery.ranks.launching import VISIBLE
from tunery.work.codec import decode_event, encode_spec
from tunery.work.events import AnyWorkEvent, StepCompleted
from tunery.work.spec import Engine, Hyper, TrainSpec

DOCUMENTS_PER_ROW: Final = 8
LIST_DEVICES: Final = """
import torch
from tunery.ml.device import uuid_of
for number in range(torch.cuda.device_count()):
    print(uuid_of(torch.device("cuda", number)))
"""


@dataclass(frozen=True)
class Run:
    """A training that has ended: its events, its status, and what its ranks wrote to stderr."""

    events: list[AnyWorkEvent]
    status: int
    errors: str

    @property
    def tokens_s(self) -> float:
        """Tokens a second of the steps after the first."""
        steps = [event for event in self.events if isinstance(event, StepCompleted)]
        return round(mean(step.tokens_per_s or 0 for step in steps[1:]), 1)


def devices_here() -> list[str]:
    """The driver's names of the GPUs of this machine; a process of its own asks for them."""
    command = [sys.executable, "-c", LIST_DEVICES]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def of_ranks(spec: TrainSpec, hyper: HyperParameters, devices: Sequence[str]) -> TrainSpec:
    """Return the same steps with a rank on each device; "" is a CPU. Raises ValueError."""
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
        engine=Engine.from_log(hyper, len(devices)) if len(devices) > 1 else Engine(),
        devices=named,
        threads=None if named else 1,
    )


async def run(
    spec: TrainSpec,
    folder: Path,
    environment: Mapping[str, str],
    *,
    walls: Walls | None = None,
    kill_after: int = 0,
) -> Run:
    """Train in a folder, in as many processes as the spec has ranks.

    walls: what confines them, as on a node; None: nothing
    kill_after: SIGKILL ends all of them after so many steps; 0: it does not
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "spec.json"
    path.write_bytes(encode_spec(spec))
    command = (sys.executable, "-m", "tunery.ml.train", str(path))
    inputs = tuple(Path(shard).parent for shard in spec.train_shards)
    own = access_of(spec)
    access = dataclasses.replace(own, read=(*own.read, *inputs))
    process = await ProcessGroups("bench", walls).start(
        command, {**os.environ, **environment}, folder, access
    )
    events: list[AnyWorkEvent] = []
    try:
        async for line in process.lines():
            events.append(decode_event(line))
            steps = sum(isinstance(event, StepCompleted) for event in events)
            if kill_after and steps >= kill_after:
                process.signal(signal.SIGKILL)
    except asyncio.CancelledError:  # the caller's time is over
        process.signal(signal.SIGKILL)
        raise
    finally:
        status = await process.wait()
    errors = "\n".join(each.read_text(errors="replace") for each in folder.glob(f"*{ERRORS}"))
    return Run(events, status, errors)


def train(spec: TrainSpec, folder: Path) -> float:
    """Tokens a second of one training. Raises RuntimeError when it fails."""
    done = asyncio.run(run(spec, folder, {VISIBLE: ",".join(spec.devices)}))
    if done.status:
        raise RuntimeError(f"{spec.out_dir}: {done.events[-1:]} {done.errors[-500:]}")
    return done.tokens_s


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
                figures[f"{kind}_{count}_tokens_s"] = train(of_count, folder / f"{kind}-{count}")
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
    parser.add_argument("--engine", choices=("fsdp2", "deepspeed"), default="fsdp2")
    parser.add_argument("--shard-weights", action="store_true")
    parser.add_argument("--base", type=Path, help="a base model's folder; else the bundled one")
    arguments = parser.parse_args()
    hyper = replace(
        hyper_parameters(arguments.steps, arguments.precision),
        batch_size=arguments.rows,
        adaptation=arguments.adaptation,
        engine=arguments.engine,
        shard_weights=arguments.shard_weights or arguments.adaptation == "full",
    )
    base = bundled_base() if arguments.base is None else arguments.base.absolute()
    figures = measure(base, hyper, arguments.ranks)
    print_figures(figures, as_json=arguments.json)


if __name__ == "__main__":
    main()
