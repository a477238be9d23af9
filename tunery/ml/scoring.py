"""Base and adapter side by side on one loaded model: raw results, no verdict.

The adapter is switched on and off, never merged: merging and unmerging changes the base's numbers.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import exp
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from tunery.ml import choices, device, generation
from tunery.ml.adapters import WEIGHTS
from tunery.ml.base import hash_base
from tunery.ml.checkpoints import canonical_json
from tunery.ml.durable import file_sha256
from tunery.ml.events import EXIT_FINISHED, EXIT_PREEMPTED, Events
from tunery.ml.loss import mean_loss
from tunery.ml.packed import PackedRows, read_rows
from tunery.work.spec import Refused, ScoreSpec

PERPLEXITY_LOSS_MAX = 700.0  # exp() of more is infinite


class ValidRow(Struct, frozen=True, kw_only=True):
    """A validation row for generation: the rendered prompt in tokens, and the answer wanted."""

    prompt_ids: tuple[int, ...]
    reference: str


class Stopped(Exception):
    """Told to leave between two batches; nothing was written."""


class Progress:
    """Says how far a stage is, and leaves when told to."""

    def __init__(self, events: Events, must_stop: Callable[[], bool]) -> None:
        self.events = events
        self.must_stop = must_stop

    def of(self, stage: str, total: int) -> Callable[[int], None]:
        def report(done: int) -> None:
            if self.must_stop():
                raise Stopped
            self.events.emit("progress", stage=stage, done=done, total=total)

        return report


def score(spec: ScoreSpec, events: Events, must_stop: Callable[[], bool]) -> int:
    """Write the results file; an exit code. Raises `Refused` for inputs that cannot be scored."""
    device.settle(spec.threads)
    model, tokenizer = _load(spec)
    progress = Progress(events, must_stop)
    items = choices.read_items(Path(spec.items)) if spec.items else ()
    events.emit("started", items=len(items), prompts=len(spec.prompts))
    try:
        results = {
            "base_sha256": spec.base_sha256,
            "adapter_sha256": file_sha256(Path(spec.adapter_dir) / WEIGHTS),
            "precision": str(next(model.parameters()).dtype).removeprefix("torch."),
            "items": _items(model, tokenizer, items, progress),
            "holdout": _holdout(model, tokenizer, spec, progress),
            "answers": _answers(model, tokenizer, spec, progress),
        }
    except Stopped:
        events.emit("preempted")
        return EXIT_PREEMPTED
    out = Path(spec.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f"{out.name}.part")
    partial.write_text(canonical_json(results), encoding="utf-8")
    partial.replace(out)
    events.emit("finished", results=str(out), sha256=file_sha256(out), bytes=out.stat().st_size)
    return EXIT_FINISHED


def read_score_spec(path: Path) -> ScoreSpec:
    """Raises `Refused("user")` naming the field that is wrong."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ScoreSpec)
    except (OSError, msgspec.MsgspecError) as error:
        raise Refused("user", f"{path}: {error}", "Correct the scoring spec.") from error


@contextmanager
def side(model: Any, name: str) -> Iterator[Any]:
    """The model as `base` (adapter off) or `adapter`."""
    if name == "adapter":
        yield model
        return
    with model.disable_adapter():
        yield model


def _load(spec: ScoreSpec) -> tuple[Any, Any]:
    found = hash_base(Path(spec.base_dir))
    if found != spec.base_sha256:
        message = f"the base's files hash to {found}, not {spec.base_sha256}"
        raise Refused("platform", message, "Fetch the base model again.")
    where = device.pick_device()
    dtype = device.pick_dtype(spec.precision, where)
    base = AutoModelForCausalLM.from_pretrained(
        spec.base_dir, dtype=dtype, attn_implementation="sdpa"
    )
    try:
        model = PeftModel.from_pretrained(base, spec.adapter_dir, autocast_adapter_dtype=False)
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        message = f"adapter {Path(spec.adapter_dir).name} does not load: {error}"
        raise Refused("user", message, "Save the adapter again with PEFT.") from error
    return model.to(where).eval(), AutoTokenizer.from_pretrained(spec.base_dir)


def _items(
    model: Any, tokenizer: Any, items: Sequence[choices.Item], progress: Progress
) -> list[dict[str, Any]]:
    trees = [choices.plant(item, tokenizer) for item in items]
    picked = {}
    for name in ("base", "adapter"):
        with side(model, name) as one:
            between = progress.of(f"items_{name}", len(items))
            picked[name] = choices.pick(one, trees, between=between)
    return [
        {
            "id": item.id,
            "category": item.category,
            "base": base == item.answer_index,
            "adapter": adapter == item.answer_index,
            "base_choice": base,
            "adapter_choice": adapter,
        }
        for item, base, adapter in zip(items, picked["base"], picked["adapter"], strict=True)
    ]


def _holdout(model: Any, tokenizer: Any, spec: ScoreSpec, progress: Progress) -> dict[str, Any]:
    rows = _valid_shards(spec, model)
    wanted = _valid_rows(spec)
    found: dict[str, Any] = {
        "rows": 0 if rows is None else rows.n_sequences,
        "tokens": 0 if rows is None else rows.n_labels,
        "generated": len(wanted),
    }
    where = next(model.parameters()).device
    for name in ("base", "adapter"):
        with side(model, name) as one:
            loss = (
                mean_loss(one, rows, rows_max=spec.valid_rows_max, device=where) if rows else None
            )
            texts = generation.answers(
                one,
                tokenizer,
                [row.prompt_ids for row in wanted],
                new_tokens_max=spec.new_tokens_max,
                between=progress.of(f"holdout_{name}", len(wanted)),
            )
        found[f"{name}_loss"] = loss
        found[f"{name}_perplexity"] = None if loss is None else exp(min(loss, PERPLEXITY_LOSS_MAX))
        found[f"{name}_exact"] = sum(
            text == row.reference.strip() for text, row in zip(texts, wanted, strict=True)
        )
    return found


def _answers(
    model: Any, tokenizer: Any, spec: ScoreSpec, progress: Progress
) -> list[dict[str, str]]:
    rendered = [generation.render(tokenizer, prompt) for prompt in spec.prompts]
    found = {}
    for name in ("base", "adapter"):
        with side(model, name) as one:
            found[name] = generation.answers(
                one,
                tokenizer,
                rendered,
                new_tokens_max=spec.new_tokens_max,
                between=progress.of(f"answers_{name}", len(rendered)),
            )
    return [
        {"prompt": prompt, "base": base, "adapter": adapter}
        for prompt, base, adapter in zip(spec.prompts, found["base"], found["adapter"], strict=True)
    ]


def _valid_shards(spec: ScoreSpec, model: Any) -> PackedRows | None:
    """The first rows of the validation split, or None when there are none with labels."""
    if not spec.valid_shards:
        return None
    rows = read_rows(spec.valid_shards, vocabulary=model.config.vocab_size)
    scored = PackedRows(rows.rows[: spec.valid_rows_max])
    return scored if scored.n_labels else None


def _valid_rows(spec: ScoreSpec) -> list[ValidRow]:
    if spec.valid_rows is None:
        return []
    lines = Path(spec.valid_rows).read_bytes().splitlines()
    try:
        return [msgspec.json.decode(line, type=ValidRow) for line in lines[: spec.generated_max]]
    except msgspec.MsgspecError as error:
        message = f"{Path(spec.valid_rows).name}: {error}"
        raise Refused("bad_data", message, "Prepare the data set again.") from error
