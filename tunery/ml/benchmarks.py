"""Benchmarks of the operator, answered by both sides: choices by likelihoods, numbers and refusals
by what is written.

Texts, tokens and choices are those of lm-evaluation-harness. What the items of a group begin with
is read once, and the base model's choices and answers are kept for the next evaluation.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from hashlib import sha256
from math import exp, fsum, isfinite
from pathlib import Path
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from tunery.benchmarks.answers import number_of
from tunery.benchmarks.refusals import refuses
from tunery.benchmarks.task import Task, TaskItem, TaskUnusable, read_task
from tunery.gate.looks import items_at
from tunery.ml import choices, generation
from tunery.ml.base_scores import BaseScoreCache, BaseScores
from tunery.ml.choices import TokenTree
from tunery.ml.sides import SIDES, Pair
from tunery.work.exits import WorkError
from tunery.work.scores import NO_CHOICE, BenchmarkScores, ItemScore, QuestionText, RefusalScore
from tunery.work.spec import BenchmarkFile, ScoreSpec

NUMBER_TOKENS_MAX: Final = 256
REFUSAL_TOKENS_MAX: Final = 80  # what refuses does it in the first 300 characters
QUESTIONS_MAX: Final = 200  # that differ and are kept with their text, of each benchmark
GROUP_HEX: Final = 16  # digits
CONTEXT_TOKENS: Final = 2_048  # of a model that does not say how much it reads
Report = Callable[[str, int], Callable[[int], None]]


def benchmark_scores(
    spec: ScoreSpec,
    pair: Pair,
    tokenizer: Any,
    kept: BaseScoreCache,
    report: Report,
    before: Sequence[BenchmarkScores] = (),
) -> tuple[BenchmarkScores, ...]:
    """Ask both sides. Raises WorkError("platform") for a file that is no benchmark.

    report: makes a function that is called with the number of items done in a stage
    before: what they have answered to a smaller share of the items; that is not asked again
    """
    answered = {scores.sha256: scores for scores in before}
    return tuple(
        _scores(file, spec, pair, tokenizer, kept, report, answered.get(file.sha256))
        for file in spec.benchmarks
    )


def _scores(
    file: BenchmarkFile,
    spec: ScoreSpec,
    pair: Pair,
    tokenizer: Any,
    kept: BaseScoreCache,
    report: Report,
    before: BenchmarkScores | None,
) -> BenchmarkScores:
    task = _sampled(file, spec)
    header = task.header
    if before is not None and header.kind == "safety":
        return before
    items: tuple[ItemScore, ...] = () if before is None else before.items
    refusals: tuple[RefusalScore, ...] = ()
    asked = task.without({item.id for item in items})
    if header.kind in ("choices", "shares"):
        items += _chosen(file, asked, pair, tokenizer, kept, report)
    elif header.kind == "numbers":
        items += _numbers(file, asked, pair, tokenizer, kept, report)
    else:
        refusals = _refusals(file, asked, pair, tokenizer, kept, report)
    return BenchmarkScores(
        name=file.name,
        task=header.task,
        kind=header.kind,
        sha256=file.sha256,
        items=items,
        refusals=refusals,
        questions=_differing(task, items),
    )


def _sampled(file: BenchmarkFile, spec: ScoreSpec) -> Task:
    """The items that are asked up to this look; prompts that should be refused all at once."""
    try:
        task = read_task(Path(file.path).read_bytes()).sample(spec.benchmark_items)
    except (TaskUnusable, OSError) as error:
        message = f"benchmark {file.name}: {error}"
        raise WorkError("platform", message, "Tell the operator: import it again.") from error
    if task.header.kind == "safety":
        return task
    return task.sample(items_at(spec.share_ppm, len(task.items)))


def _chosen(
    file: BenchmarkFile,
    task: Task,
    pair: Pair,
    tokenizer: Any,
    kept: BaseScoreCache,
    report: Report,
) -> tuple[ItemScore, ...]:
    """Items by the likelihoods of their choices."""
    ids = "\n".join(item.id for item in task.items)
    key = f"{file.sha256}/{ids}".encode()
    known = kept.load_scores(key)
    trees = trees_of(task, tokenizer, _context_tokens(pair))
    scored = {} if known is None else {"base": known}
    for names in pair.passes if known is None else (("adapter",),):
        between = report(f"{file.name}_{'_'.join(names)}", len(trees))
        with pair.sides(names) as sides:
            read = choices.likelihoods(sides, trees, groups_of(task), between=between)
        scored |= {name: _scored(of_side, task) for name, of_side in zip(names, read, strict=True)}
    if known is None:
        kept.save_scores(key, scored["base"])
    return _item_scores(task, scored["base"], scored["adapter"])


def _scored(likelihoods: Sequence[Sequence[float]], task: Task) -> BaseScores:
    """Return the choices of one side, and the shares of true choices where the task has them."""
    scores = BaseScores(choices=tuple(pick(likelihoods, task)))
    if task.header.kind != "shares":
        return scores
    shares = [
        true_share(of_item, item.true_choices)
        for of_item, item in zip(likelihoods, task.items, strict=True)
    ]
    return replace(scores, shares=tuple(shares))


def _item_scores(task: Task, base: BaseScores, adapter: BaseScores) -> tuple[ItemScore, ...]:
    answered = [
        _item_score(item, range(item.true_choices) or (item.answer_index,), *chosen)
        for item, *chosen in zip(task.items, base.choices, adapter.choices, strict=True)
    ]
    if base.shares is UNSET or adapter.shares is UNSET:
        return tuple(answered)
    return tuple(
        replace(
            score,
            base_share=base_share,
            adapter_share=adapter_share,
            group=sha256(item.question.encode()).hexdigest()[:GROUP_HEX],
        )
        for score, item, base_share, adapter_share in zip(
            answered, task.items, base.shares, adapter.shares, strict=True
        )
    )


def true_share(likelihoods: Sequence[float], count: int) -> float | None:
    """Return the first `count` choices' share of the likelihood of all, 0 to 1: the harness' MC2.

    likelihoods: logarithms, in nats. None: they are not all finite.
    """
    if not all(map(isfinite, likelihoods)):
        return None
    highest = max(likelihoods)  # so that no sum is 0, however long the choices are
    weights = [exp(value - highest) for value in likelihoods]
    return fsum(weights[:count]) / fsum(weights)


def pick(likelihoods: Sequence[Sequence[float]], task: Task) -> list[int]:
    """For each item the likeliest choice, by its characters where the task says so.

    One whose likelihoods are not all finite has `NO_CHOICE`.
    """
    picked = []
    for of_item, item in zip(likelihoods, task.items, strict=True):
        sizes = [len(choice) if task.header.per_character else 1 for choice in item.choices]
        values = [value / size for value, size in zip(of_item, sizes, strict=True)]
        finite = all(map(isfinite, values))
        picked.append(values.index(max(values)) if finite else NO_CHOICE)
    return picked


def groups_of(task: Task) -> list[list[int]]:
    """Numbers of the items that begin alike."""
    groups: dict[str, list[int]] = defaultdict(list)
    for number, item in enumerate(task.items):
        groups[item.beginning].append(number)
    return list(groups.values())


def trees_of(task: Task, tokenizer: Any, most: int) -> list[TokenTree]:
    """The tokens of all items. most: tokens that the model reads."""
    return [_tree(task, item, tokenizer, most) for item in task.items]


def _tree(task: Task, item: TaskItem, tokenizer: Any, most: int) -> TokenTree:
    """The tokens of an item; of one that is too long the end, as the harness reads it."""
    tree = choices.tree_of(tokenizer, task.begin(item), item.choices)
    question_max = most + 1 - max(map(len, tree.choices))
    if len(tree.question) <= question_max:
        return tree
    return TokenTree(tree.question[-max(1, question_max) :], tree.choices, tree.choice_bytes)


def _context_tokens(pair: Pair) -> int:
    config = pair.trained.config.get_text_config()
    return int(getattr(config, "max_position_embeddings", None) or CONTEXT_TOKENS)


def _numbers(
    file: BenchmarkFile,
    task: Task,
    pair: Pair,
    tokenizer: Any,
    kept: BaseScoreCache,
    report: Report,
) -> tuple[ItemScore, ...]:
    """Items by the number that a written answer ends with."""
    prompts = [task.begin(item) for item in task.items]
    ids = [tokenizer(prompt).input_ids for prompt in prompts]
    keys = [file.sha256, *prompts]
    texts = written(file.name, keys, ids, NUMBER_TOKENS_MAX, pair, tokenizer, kept, report)
    right = {
        name: [
            number_of(text) == item.answer
            for text, item in zip(texts[name], task.items, strict=True)
        ]
        for name in SIDES
    }
    return tuple(
        _item_score(item, (0,), int(not base), int(not adapter))
        for item, base, adapter in zip(task.items, right["base"], right["adapter"], strict=True)
    )


def _refusals(
    file: BenchmarkFile,
    task: Task,
    pair: Pair,
    tokenizer: Any,
    kept: BaseScoreCache,
    report: Report,
) -> tuple[RefusalScore, ...]:
    """Prompts by whether their answers refuse."""
    prompts = [task.begin(item) for item in task.items]
    ids = [generation.render(tokenizer, prompt) for prompt in prompts]
    keys = [file.sha256, *prompts]
    texts = written(file.name, keys, ids, REFUSAL_TOKENS_MAX, pair, tokenizer, kept, report)
    answered = zip(task.items, prompts, texts["base"], texts["adapter"], strict=True)
    return tuple(
        RefusalScore(
            id=item.id,
            category=item.category,
            unsafe=item.unsafe,
            prompt=prompt,
            base=base,
            adapter=adapter,
            base_refuses=refuses(base),
            adapter_refuses=refuses(adapter),
        )
        for item, prompt, base, adapter in answered
    )


def written(
    stage: str,
    keys: Sequence[str] | None,
    ids: Sequence[Sequence[int]],
    tokens_max: int,
    pair: Pair,
    tokenizer: Any,
    kept: BaseScoreCache,
    report: Report,
) -> Mapping[str, Sequence[str]]:
    """Generate the answers of both sides, greedily; the base's come from the cache if it has them.

    keys: of the base's answers in the cache; None: they are not kept
    ids: tokens of the prompts
    """
    known = None if keys is None else kept.load_answers(keys, tokens_max)
    texts: dict[str, Sequence[str]] = {} if known is None else {"base": known}
    for name in SIDES:
        if name in texts:
            continue
        with pair.side(name) as model:
            texts[name] = generation.answers(
                model,
                tokenizer,
                ids,
                new_tokens_max=tokens_max,
                between=report(f"{stage}_{name}", len(ids)),
            )
    if known is None and keys is not None:
        kept.save_answers(keys, tokens_max, texts["base"])
    return texts


def _item_score(item: TaskItem, right: Container[int], base: int, adapter: int) -> ItemScore:
    """right: numbers of the choices that are."""
    return ItemScore(
        id=item.id,
        category=item.category,
        base=base in right,
        adapter=adapter in right,
        base_choice=base,
        adapter_choice=adapter,
    )


def _differing(task: Task, scores: Sequence[ItemScore]) -> tuple[QuestionText, ...]:
    """The texts of items that exactly one side answered right: the gate's report shows them."""
    differing = {score.id for score in scores if score.base != score.adapter}
    shown = [item for item in task.items if item.id in differing][:QUESTIONS_MAX]
    return tuple(
        QuestionText(
            id=item.id,
            question=item.question,
            choices=item.choices or (item.answer, "another number"),
            answer_index=item.answer_index,
        )
        for item in shown
    )
