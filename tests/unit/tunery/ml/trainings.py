"""A small training in this process, and its events."""

import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tunery.ml.events import EventWriter
from tunery.work.spec import Hyper, ResumeCandidate, TrainSpec

ROWS, EPOCHS, STEPS = 6, 2, 6  # two rows a step
HYPER = Hyper(
    n_epochs=EPOCHS,
    accumulation=2,
    batch_size=1,
    learning_rate=0.01,
    rank=16,
    alpha=32,
    dropout=0.2,
    max_length=512,
    warmup=0.2,
    weight_decay=0.0,
    seed=42,
)
PLAIN = msgspec.structs.replace(
    HYPER, dropout=0.0, accumulation=1, scheduler="constant", warmup=0.0, learning_rate=1e-3
)

Event = dict[str, Any]
Go = Callable[..., tuple[int, list[Event]]]


def go(spec: TrainSpec, must_stop: Callable[[], bool] = lambda: False) -> tuple[int, list[Event]]:
    from tunery.ml.fine_tuning import fine_tune

    stream = io.BytesIO()
    code = fine_tune(spec, EventWriter(stream, time.monotonic()), must_stop)
    return code, [json.loads(line) for line in stream.getvalue().splitlines()]


def of(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event["type"] == kind]


def resumed(spec: TrainSpec, *checkpoints: Event, out: str) -> TrainSpec:
    candidates = tuple(
        ResumeCandidate(dir=event["dir"], manifest_sha256=event["manifest_sha256"])
        for event in checkpoints
    )
    folder = str(Path(spec.out_dir).with_name(out))
    return msgspec.structs.replace(spec, resume=candidates, out_dir=folder)


def stop_after(boundaries: int) -> Callable[[], bool]:
    """The trainer asks once before it starts and once at every step boundary."""
    asked = iter(range(10_000))
    return lambda: next(asked) >= boundaries


def figures(steps: list[Event]) -> list[tuple[int, float, float]]:
    return [(event["step"], event["loss"], event["grad_norm"]) for event in steps]


def tiny_mixture(vocabulary: int) -> Any:
    """A random mixture of four experts in one layer, two of them for each token."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    config = Qwen3MoeConfig(
        vocab_size=vocabulary,
        hidden_size=16,
        intermediate_size=32,
        moe_intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
    )
    return Qwen3MoeForCausalLM(config)


def random_base(model: Any, tiny: Path, dest: Path) -> str:
    """The hash of a base with these weights and the real tokenizer."""
    from transformers import AutoTokenizer

    from tunery.platform.blobs.base_files import hash_base

    model.save_pretrained(dest)
    AutoTokenizer.from_pretrained(tiny).save_pretrained(dest)
    return hash_base(dest)


def on(spec: TrainSpec, folder: Path, **changed: Any) -> TrainSpec:
    """The spec with another base."""
    from tunery.platform.blobs.base_files import hash_base

    hyper = msgspec.structs.replace(PLAIN, **{"max_steps": 2, **changed})
    base = {"base_dir": str(folder), "base_sha256": hash_base(folder), "hyper": hyper}
    return msgspec.structs.replace(spec, **base, valid_shards=(), checkpoint_every_steps=100)
