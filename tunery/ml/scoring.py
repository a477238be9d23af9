"""Base and adapter side by side on one loaded model: raw results, no verdict.

The adapter is switched on and off, never merged: merging and unmerging changes the base's numbers.
Where every weight was trained, what is called the adapter is a whole model next to the base.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from math import exp, isfinite
from pathlib import Path
from typing import Any, Final

import msgspec
import torch
from msgspec import Struct
from msgspec.structs import replace
from peft import PeftModel

from tunery.ml import choices, device, generation
from tunery.ml.base_scores import BaseScoreCache
from tunery.ml.benchmarks import benchmark_scores
from tunery.ml.engines.fsdp2 import offload_layers
from tunery.ml.events import EventWriter
from tunery.ml.language import load_tokenizer
from tunery.ml.loss import prove_packing
from tunery.ml.measured import measured_rows
from tunery.ml.methods import objective_of
from tunery.ml.model import LoadBase, load_base, set_adapter_type
from tunery.ml.model_scores import model_scores_of
from tunery.ml.objectives import mean_scores
from tunery.ml.order import sample_rows
from tunery.ml.packed import PackedRows, read_rows
from tunery.ml.reference import row_logps
from tunery.ml.rewards import add_head
from tunery.ml.sides import SIDES, Pair
from tunery.ml.trained import weights_file
from tunery.platform.blobs.base_files import default_cache, matches
from tunery.platform.blobs.files import file_sha256
from tunery.work.codec import decode_scores, encode_scores
from tunery.work.events import Preempted, ScoringFinished, ScoringProgressed, ScoringStarted
from tunery.work.exits import ExitCode, WorkError
from tunery.work.scores import NO_CHOICE, HoldoutScores, ItemScore, PromptAnswers, Scores
from tunery.work.spec import ScoreSpec

PERPLEXITY_LOSS_MAX: Final = 700.0  # exp() of more is infinite
NO_LOSSES: Final[Mapping[str, float | None]] = dict.fromkeys(SIDES)


class ValidRow(Struct, frozen=True, kw_only=True):
    """A validation row for generation: the rendered prompt in tokens, and the reference answer."""

    prompt_ids: tuple[int, ...]
    reference: str


class StopRequested(Exception):
    """The process was asked to stop between two batches; nothing was written."""


class StageProgress:
    """Emits how far a stage is, and stops the scoring when the process is asked to stop."""

    def __init__(self, events: EventWriter, must_stop: Callable[[], bool]) -> None:
        self.events = events
        self.must_stop = must_stop

    def callback(self, stage: str, total: int) -> Callable[[int], None]:
        """A function to call with the number of parts done, any number of times.

        Raises StopRequested when the process was asked to stop.
        """
        last_done = 0

        def report(done: int) -> None:
            nonlocal last_done
            if self.must_stop():
                raise StopRequested
            if done == last_done:
                return
            last_done = done
            self.events.emit(ScoringProgressed(stage=stage, done=done, total=total))

        return report


def score(
    spec: ScoreSpec,
    events: EventWriter,
    must_stop: Callable[[], bool],
    load: LoadBase = load_base,
) -> ExitCode:
    """Write the results file. Raises WorkError for inputs that cannot be scored.

    load: gives the base of an adapter
    """
    device.make_deterministic(spec.threads)
    pair = load_pair(spec, load)
    tokenizer = load_tokenizer(spec, *pair.models)
    progress = StageProgress(events, must_stop)
    items = _asked_items(spec)
    precision = str(next(pair.trained.parameters()).dtype).removeprefix("torch.")
    kept = BaseScoreCache(spec, precision, pair.device)
    scores = _scores_before(spec, precision)
    events.emit(ScoringStarted(items=len(items), prompts=len(spec.prompts or ())))
    try:
        if scores is None:
            scores = _first_scores(spec, items, pair, tokenizer, kept, progress)
        benchmarks = benchmark_scores(
            spec, pair, tokenizer, kept, progress.callback, scores.benchmarks
        )
        asked = tuple(chain.from_iterable(of_benchmark.items for of_benchmark in benchmarks))
        not_finite = {*scores.not_finite, *_not_finite(asked)}
        scores = replace(
            scores,
            benchmarks=benchmarks,
            not_finite=tuple(name for name in SIDES if name in not_finite),
        )
    except StopRequested:
        events.emit(Preempted())
        return ExitCode.PREEMPTED
    write_scores(spec, scores, events)
    return ExitCode.FINISHED


def write_scores(spec: ScoreSpec, scores: Scores, events: EventWriter) -> None:
    """Write the results file, whole or not at all."""
    out = Path(spec.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f"{out.name}.part")
    partial.write_bytes(encode_scores(scores))
    partial.replace(out)
    size = out.stat().st_size
    events.emit(ScoringFinished(results=str(out), sha256=file_sha256(out), bytes=size))


def _scores_before(spec: ScoreSpec, precision: str) -> Scores | None:
    """Return the scores of the evaluation's earlier stage; None: there was none.

    Raises WorkError if they are of other models, or in another precision.
    """
    if spec.scored is None:
        return None
    scores = decode_scores(Path(spec.scored).read_bytes())
    known = (scores.base_sha256, scores.adapter_sha256, scores.precision)
    if known != (spec.base_sha256, _adapter_sha256(spec), precision):
        message = "the scores of the earlier stage are of other models, or in another precision"
        raise WorkError("bad_node", message, "Evaluate on a machine like the one before.")
    return scores


def _asked_items(spec: ScoreSpec) -> tuple[choices.ChoiceItem, ...]:
    """Return the items that both sides are asked: always the same ones."""
    items = choices.read_items(Path(spec.items)) if spec.items else ()
    if spec.items_max is None:
        return items
    return tuple(items[number] for number in sample_rows(len(items), spec.items_max))


def _first_scores(
    spec: ScoreSpec,
    items: tuple[choices.ChoiceItem, ...],
    pair: Pair,
    tokenizer: Any,
    kept: BaseScoreCache,
    progress: StageProgress,
) -> Scores:
    """Everything but the benchmarks."""
    item_scores = _items(pair, tokenizer, items, kept, progress)
    holdout, losses, answers = _on_texts(pair, tokenizer, spec, kept, progress)
    measures, rows = measured_rows(spec, tokenizer, pair.side, progress.callback)
    return Scores(
        base_sha256=spec.base_sha256,
        adapter_sha256=_adapter_sha256(spec),
        precision=kept.precision,
        items=item_scores,
        holdout=holdout,
        answers=answers,
        not_finite=_not_finite(item_scores, losses),
        measures=measures,
        rows=rows,
        questions=choices.questions_that_differ(items, item_scores),
    )


def _adapter_sha256(spec: ScoreSpec) -> str:
    return file_sha256(Path(spec.adapter_dir) / weights_file(spec.adaptation))


def load_pair(spec: ScoreSpec, load: LoadBase, *, rewards: bool = False) -> Pair:
    """Load both sides, for reward models with a head. Raises WorkError where one does not load."""
    sha256 = matches(Path(spec.base_dir), spec.base_sha256, default_cache())
    if sha256 is not None:
        message = f"the base's files hash to {sha256}, not {spec.base_sha256}"
        raise WorkError("bad_node", message, "Fetch the base model again.")
    torch_device = device.pick_device(spec.accelerators)
    dtype = device.pick_dtype(spec.precision, torch_device)
    four_bits = spec.adaptation == "qlora"
    sides = {"lora": 1, "full": 2}.get(spec.adaptation, 0)  # copies of the base's weights
    streams = sides > 0 and device.outgrows(Path(spec.base_dir), torch_device, sides)
    begins_on = torch.device("cpu") if streams else torch_device
    base = load(spec.base_dir, dtype, begins_on, four_bits=four_bits)
    if rewards:
        add_head(base)
    if spec.adaptation == "full":
        whole = load_base(spec.adapter_dir, dtype, begins_on, four_bits=False)
        for model in (base, whole) if streams else ():
            offload_layers(model.requires_grad_(requires_grad=False), torch_device)
        return Pair(whole.eval(), base.eval())
    try:
        model = PeftModel.from_pretrained(base, spec.adapter_dir, autocast_adapter_dtype=False)
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        message = f"adapter {Path(spec.adapter_dir).name} does not load: {error}"
        raise WorkError("user", message, "Save the adapter again with PEFT.") from error
    if four_bits:
        set_adapter_type(model, dtype)
    if streams:
        offload_layers(model.requires_grad_(requires_grad=False), torch_device, rewards=rewards)
        return Pair(model.eval())
    return Pair(model.to(torch_device).eval())


def _items(
    pair: Pair,
    tokenizer: Any,
    items: Sequence[choices.ChoiceItem],
    kept: BaseScoreCache,
    progress: StageProgress,
) -> tuple[ItemScore, ...]:
    task = msgspec.json.encode(items)
    known = kept.load_choices(task)
    trees = [choices.tokenise(item, tokenizer) for item in items]
    picked: dict[str, Sequence[int]] = {} if known is None else {"base": known}
    for names in pair.passes if known is None else (("adapter",),):
        stage = f"items_{names[0]}" if len(names) == 1 else "items"
        with pair.sides(names) as sides:
            between = progress.callback(stage, len(items))
            of_sides = choices.pick(sides, trees, between=between)
        picked |= dict(zip(names, of_sides, strict=True))
    if known is None:
        kept.save_choices(task, picked["base"])
    return tuple(
        ItemScore(
            id=item.id,
            category=item.category,
            base=base == item.answer_index,
            adapter=adapter == item.answer_index,
            base_choice=base,
            adapter_choice=adapter,
        )
        for item, base, adapter in zip(items, picked["base"], picked["adapter"], strict=True)
    )


def _not_finite(
    items: Sequence[ItemScore], losses: Mapping[str, float | None] = NO_LOSSES
) -> tuple[str, ...]:
    """The sides of which a likelihood or a loss is NaN or infinite."""
    chosen = {
        "base": [item.base_choice for item in items],
        "adapter": [item.adapter_choice for item in items],
    }
    return tuple(
        name
        for name in SIDES
        if NO_CHOICE in chosen[name] or (losses[name] is not None and _finite(losses[name]) is None)
    )


def _on_texts(
    pair: Pair, tokenizer: Any, spec: ScoreSpec, kept: BaseScoreCache, progress: StageProgress
) -> tuple[HoldoutScores, Mapping[str, float | None], tuple[PromptAnswers, ...]]:
    """Scores on the validation split, both losses as they were computed, and answers to prompts."""
    rows, references = _valid_shards(spec, pair.trained), _valid_rows(spec)
    prompts = spec.prompts or ()
    packing = rows is not None and _can_pack(pair, rows, kept)
    task = _holdout_task(spec, references, packing=packing)
    known = None if spec.grader is not None else kept.load_holdout(task)  # graders ask others
    known_answers = None
    if not spec.own_prompts:
        known_answers = kept.load_answers(prompts, spec.answer_tokens_max)
    losses = _losses(pair, tokenizer, spec, rows, packing=packing, base_known=known is not None)
    exact: dict[str, int] = {}
    answers: dict[str, Sequence[str]] = {}
    for name in SIDES:
        is_base = name == "base"
        asked_rows = [] if is_base and known is not None else references
        asked_prompts = () if is_base and known_answers is not None else prompts
        with pair.side(name) as model:
            of_rows, answers[name] = _texts(
                model, tokenizer, spec, asked_rows, asked_prompts, name, progress
            )
        exact[name] = sum(
            text == row.reference.strip() for text, row in zip(of_rows, asked_rows, strict=True)
        )
    if known is not None:
        losses["base"], exact["base"] = known
    elif spec.grader is None:
        kept.save_holdout(task, losses["base"], exact["base"])
    if known_answers is not None:
        answers["base"] = known_answers
    elif not spec.own_prompts:
        kept.save_answers(prompts, spec.answer_tokens_max, answers["base"])
    base_loss, adapter_loss = _finite(losses["base"]), _finite(losses["adapter"])
    is_likelihood = rows is not None and rows.kind == "answers"
    scores = HoldoutScores(
        rows=0 if rows is None else rows.n_sequences,
        tokens=0 if rows is None else rows.n_labels,
        base_loss=base_loss,
        adapter_loss=adapter_loss,
        base_perplexity=_perplexity(base_loss) if is_likelihood else None,
        adapter_perplexity=_perplexity(adapter_loss) if is_likelihood else None,
        generated=len(references),
        base_exact=exact["base"],
        adapter_exact=exact["adapter"],
    )
    both = zip(prompts, answers["base"], answers["adapter"], strict=True)
    return (
        scores,
        losses,
        tuple(
            PromptAnswers(prompt=prompt, base=base, adapter=adapter)
            for prompt, base, adapter in both
        ),
    )


def _losses(
    pair: Pair,
    tokenizer: Any,
    spec: ScoreSpec,
    rows: PackedRows | None,
    *,
    packing: bool,
    base_known: bool,
) -> dict[str, float | None]:
    """The losses of both sides on validation rows; None without rows, and where it is known."""
    losses: dict[str, float | None] = dict.fromkeys(SIDES)
    if rows is None:
        return losses
    objective = objective_of(
        spec,
        rows,
        packing=packing,
        grader=spec.grader,
        tokenizer=tokenizer,
        scores=model_scores_of(spec),
    )
    if objective.needs_reference:
        rows = _with_base_as_reference(pair, rows, pair.device, packing)
    for name in SIDES:
        if name == "base" and base_known:
            continue
        with pair.side(name) as switched:
            losses[name] = mean_scores(
                objective, switched, rows, rows_max=spec.valid_rows_max, device=pair.device
            ).loss
    return losses


def _texts(
    model: Any,
    tokenizer: Any,
    spec: ScoreSpec,
    rows: Sequence[ValidRow],
    prompts: Sequence[str],
    side: str,
    progress: StageProgress,
) -> tuple[Sequence[str], Sequence[str]]:
    """Answers to rows and to prompts, all at once where they may have as many tokens.

    Those to rows are compared with the references and no more, so they end where they differ.
    """

    def write(
        stage: str,
        asked: Sequence[Sequence[int]],
        tokens_max: int,
        references: Sequence[str] = (),
    ) -> list[str]:
        return generation.answers(
            model,
            tokenizer,
            asked,
            new_tokens_max=tokens_max,
            references=references,
            between=progress.callback(f"{stage}_{side}", len(asked)),
        )

    of_rows, references = [row.prompt_ids for row in rows], [row.reference for row in rows]
    of_prompts = [generation.render(tokenizer, prompt) for prompt in prompts]
    if spec.new_tokens_max == spec.answer_tokens_max:
        texts = write("answers", [*of_rows, *of_prompts], spec.answer_tokens_max, references)
        return texts[: len(rows)], texts[len(rows) :]
    return (
        write("holdout", of_rows, spec.new_tokens_max, references),
        write("answers", of_prompts, spec.answer_tokens_max),
    )


def _holdout_task(spec: ScoreSpec, references: Sequence[ValidRow], *, packing: bool) -> bytes:
    """Return all that the base model's scores on validation rows follow from."""
    asked = (
        [file_sha256(Path(shard)) for shard in spec.valid_shards],
        references,
        [spec.valid_rows_max, spec.new_tokens_max, spec.max_completion_length, spec.threads],
        [spec.method, spec.loss_type, spec.beta, spec.label_smoothing, spec.gamma],
        [spec.desirable, spec.undesirable, packing],
    )
    return msgspec.json.encode(asked)


def _with_base_as_reference(
    pair: Pair, rows: PackedRows, torch_device: Any, packing: bool
) -> PackedRows:
    """The rows with the likelihoods of their answers under the base model."""
    with pair.side("base") as base:
        of_rows = [row_logps(base, rows, at, torch_device, packing) for at in range(len(rows))]
    return rows.with_reference(torch.cat(of_rows))


def _can_pack(pair: Pair, rows: PackedRows, kept: BaseScoreCache) -> bool:
    """Return whether packed documents do not affect each other in the base model."""
    if kept.is_packing_proven():
        return True
    try:
        with pair.side("base") as base:
            exact = base.dtype == torch.float32
            difference = prove_packing(base, rows, pair.device, exact=exact)
    except WorkError:
        return False
    if difference is not None:
        kept.save_packing_proof()
    return True


def _finite(loss: float | None) -> float | None:
    return loss if loss is not None and isfinite(loss) else None


def _perplexity(loss: float | None) -> float | None:
    return None if loss is None else exp(min(loss, PERPLEXITY_LOSS_MAX))


def _valid_shards(spec: ScoreSpec, model: Any) -> PackedRows | None:
    """A sample of the validation split, or None when it has no labels."""
    if not spec.valid_shards:
        return None
    rows = read_rows(spec.valid_shards, vocabulary=model.config.get_text_config().vocab_size)
    scored = rows.sample(spec.valid_rows_max)
    return scored if scored.n_labels else None


def _valid_rows(spec: ScoreSpec) -> list[ValidRow]:
    if spec.valid_rows is None:
        return []
    lines = Path(spec.valid_rows).read_bytes().splitlines()
    try:
        chosen = sample_rows(len(lines), spec.generated_max)
        return [msgspec.json.decode(lines[number], type=ValidRow) for number in chosen]
    except msgspec.MsgspecError as error:
        message = f"{Path(spec.valid_rows).name}: {error}"
        raise WorkError("bad_data", message, "Prepare the dataset again.") from error
