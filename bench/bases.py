"""Trains tiny random models of families on packed rows, and on documents by themselves.

    python -m bench.bases [FAMILY ...] [--steps 6] [--json]

Tokens a second of a LoRA step, as a job takes it: `packed`, where the documents of a row are
computed together and do not see each other, and `by_length`, what `training.packing: false` does
and a base does whose documents would see each other. Documents have the lengths of `bench.trainer`.
A tiny model spends its time on operations and not on their size, so its ratio is more than that of
a large one; `--base FOLDER` measures another model.
"""

import argparse
import io
import logging
import time
import warnings
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from msgspec.structs import replace

from bench.measures import print_figures
from bench.trainer import documents, hyper_parameters, write_shard
from tests.families import write_tiny
from tunery.ml.small_models import SMALL_SCALE
from tunery.platform.blobs.base_files import hash_base
from tunery.work.codec import decode_event
from tunery.work.events import StepCompleted
from tunery.work.spec import Hyper, TrainSpec

FAMILIES: Final = ("llama", "qwen3", "gemma3_text", "mixtral", "gpt_oss", "qwen3_5", "falcon_h1")
ROWS: Final = 64  # documents; each model has as many


def tokens_s(base: Path, packing: bool, steps: int, work: Path) -> float | None:
    """Return the median of the steps after the first; None: documents would see each other."""
    from transformers import AutoConfig

    from tunery.ml.events import EventWriter
    from tunery.ml.fine_tuning import fine_tune
    from tunery.work.exits import WorkError

    words = AutoConfig.from_pretrained(base).get_text_config().vocab_size
    rows = [[token % words for token in row] for row in documents(ROWS)]
    hyper = replace(hyper_parameters(steps, "fp32"), packing=packing, n_epochs=steps)
    write_shard(rows, work / "train.safetensors", hyper.max_length)
    spec = TrainSpec(
        base_dir=str(base),
        base_id=base.name,
        base_sha256=hash_base(base),
        train_shards=(str(work / "train.safetensors"),),
        out_dir=str(work / f"out-{packing}"),
        hyper=Hyper.from_log(hyper),
        precision="fp32",
        checkpoint_every_steps=steps,
    )
    events = io.BytesIO()
    try:
        fine_tune(spec, EventWriter(events, time.monotonic()), lambda: False)
    except WorkError:
        if packing:
            return None
        raise
    decoded = [decode_event(line) for line in events.getvalue().splitlines()]
    speeds = [each.tokens_per_s or 0.0 for each in decoded if isinstance(each, StepCompleted)]
    return median(speeds[1:])


def compare(name: str, base: Path, steps: int) -> dict[str, float | None]:
    """Return both figures of a model, and their ratio."""
    figures: dict[str, float | None] = {}
    for key, packing in (("packed", True), ("by_length", False)):
        with TemporaryDirectory() as work:
            figures[f"{name}_{key}_tokens_s"] = tokens_s(base, packing, steps, Path(work))
    packed, alone = figures.values()
    if packed and alone:
        figures[f"{name}_ratio"] = round(packed / alone, 2)
    return figures


def main() -> None:
    """Print the figures of each family."""
    parser = argparse.ArgumentParser(prog="python -m bench.bases", description=__doc__)
    parser.add_argument("families", nargs="*", metavar="FAMILY")
    parser.add_argument("--base", type=Path, help="a base model's folder, instead of families")
    parser.add_argument("--steps", type=int, default=6, help="the first is not counted")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    figures: dict[str, Any] = {}
    if arguments.base:
        figures = compare(arguments.base.name, arguments.base, arguments.steps)
    else:
        with TemporaryDirectory() as folder:
            for family in arguments.families or FAMILIES:
                base = write_tiny(family, Path(folder) / family, scale=SMALL_SCALE)
                figures |= compare(family, base, arguments.steps)
    print_figures(figures, as_json=arguments.json)


if __name__ == "__main__":
    main()
