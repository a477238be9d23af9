"""Four trainings in one process compared with the same four one after another, each in its own.

    .venv/bin/python -m bench.colocated --json

They have the documents and settings of `bench.trainer`, with dropout, and seeds of their own. Each
process has loaded its libraries before, as on a node. Seconds are from the order to the end:
`start_s` is the part before the first step, which hashes and loads the base model, and
`steps_ratio` compares what comes after it. `peak_gb` of four processes is what they have together.
`same_adapters` counts adapters whose bytes are those of the training alone: all of them must be.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from msgspec.structs import replace

from bench.measures import print_figures
from bench.shapes import bundled_base
from bench.trainer import TRAIN, documents, hyper_parameters, run_forked, written_spec
from schemas.training import HyperParameters
from tunery.plan.memory import CONTEXT_BYTES
from tunery.work.codec import decode_colocated_event, decode_event, encode_spec
from tunery.work.events import AnyWorkEvent, Finished, Started, StepCompleted
from tunery.work.spec import ColocatedSpec, TrainSpec

TRAININGS: Final = 4
DROPOUT: Final = 0.05
DOCUMENTS_PER_ROW: Final = 8
GB: Final = 1e9


def specs_of(spec: TrainSpec, folder: Path) -> dict[str, TrainSpec]:
    """The trainings, which differ in their seeds, writing below a folder."""
    return {
        f"seed-{seed}": replace(
            spec,
            out_dir=str(folder / f"seed-{seed}"),
            hyper=replace(spec.hyper, seed=seed, dropout=DROPOUT),
            checkpoint_every_steps=10_000,
        )
        for seed in range(1, TRAININGS + 1)
    }


def start_s(events: Sequence[AnyWorkEvent]) -> float:
    """Seconds until the first of its trainings could take a step: by then all are set up."""
    return min(event.elapsed_ms for event in events if isinstance(event, Started)) / 1000


def peak_gb(events: Sequence[AnyWorkEvent], *, on_gpu: bool) -> float:
    """The most memory that a process had at once; on a GPU that of the device."""
    steps = [event for event in events if isinstance(event, StepCompleted)]
    peak = max(step.memory_bytes or 0 for step in steps)
    return (peak + (CONTEXT_BYTES if on_gpu else 0)) / GB


def adapters(events: Sequence[AnyWorkEvent]) -> list[str]:
    """Hashes of what was trained."""
    return sorted(event.adapter_sha256 for event in events if isinstance(event, Finished))


def compare(spec: TrainSpec, folder: Path) -> dict[str, float]:
    """All figures. spec: what all trainings do. Raises RuntimeError where one fails."""
    from tunery.ml.device import pick_device

    on_gpu = pick_device().type == "cuda"
    proofs = replace(spec, proof_dir=str(folder / "colocated-proofs"))
    first, *_ = specs_of(proofs, folder / "first").values()
    short = replace(first, hyper=replace(first.hyper, max_steps=1))
    run_forked(TRAIN, encode_spec(short), folder)  # what is shown once for a node is shown by it
    each: list[tuple[list[AnyWorkEvent], float]] = []
    for alone in specs_of(proofs, folder / "alone").values():
        lines, took_s = run_forked(TRAIN, encode_spec(alone), folder)
        each.append(([decode_event(line) for line in lines], took_s))
    together = ColocatedSpec(trainings=specs_of(proofs, folder / "together"))
    lines, together_s = run_forked(TRAIN, encode_spec(together), folder)
    events = [decode_colocated_event(line).event for line in lines]
    alone_s = sum(took_s for _, took_s in each)
    alone_start_s = sum(start_s(own) for own, _ in each)
    shared_s, own_s = together_s - start_s(events), alone_s - alone_start_s
    expected = [digest for own, _ in each for digest in adapters(own)]
    figures = {
        "ratio": alone_s / together_s,
        "steps_ratio": own_s / shared_s,
        "s": together_s,
        "start_s": start_s(events),
        "alone_s": alone_s,
        "alone_start_s": alone_start_s,
        "peak_gb": peak_gb(events, on_gpu=on_gpu),
        "alone_peak_gb": sum(peak_gb(own, on_gpu=on_gpu) for own, _ in each),
        "same_adapters": len({*adapters(events)} & {*expected}),
    }
    return {f"colocated_{TRAININGS}_{name}": round(figures[name], 2) for name in figures}


def measure(base: Path, threads: int, hyper: HyperParameters) -> dict[str, float]:
    """All figures of one run. base: the folder of the base model"""
    with TemporaryDirectory() as name:
        folder = Path(name)
        rows = documents(DOCUMENTS_PER_ROW * hyper.batch_size * (hyper.max_steps + 1))
        spec = replace(written_spec(base, hyper, folder, rows), threads=threads)
        return compare(spec, folder)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--steps", type=int, default=10, help="of each training")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=2, help="packed rows of a step")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--base", type=Path, help="a base model's folder; else the bundled one")
    arguments = parser.parse_args()
    hyper = hyper_parameters(arguments.steps, arguments.precision)
    hyper = replace(hyper, batch_size=arguments.batch)
    base = bundled_base() if arguments.base is None else arguments.base.absolute()
    print_figures(measure(base, arguments.threads, hyper), as_json=arguments.json)


if __name__ == "__main__":
    main()
