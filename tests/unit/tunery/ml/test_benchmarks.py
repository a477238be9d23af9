"""Benchmarks through the scorer: both sides, the base model's scores kept, refusals, numbers."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from tests.unit.tunery.benchmarks.tasks import choices_task, numbers_task, safety_task, shares_task
from tests.unit.tunery.ml.test_scoring import adapter as adapter
from tests.unit.tunery.ml.test_scoring import go
from tests.unit.tunery.ml.test_scoring import spec as spec
from tunery.benchmarks.task import TaskItem, read_task
from tunery.ml.benchmarks import true_share
from tunery.work.codec import decode_scores, encode_scores
from tunery.work.exits import ExitCode, WorkError
from tunery.work.scores import NO_CHOICE, ItemScore, Scores
from tunery.work.spec import BenchmarkFile, ScoreSpec

pytestmark = [
    pytest.mark.train,
    # peft 0.21 asks transformers 5 by a name that is going away
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]


@pytest.fixture(autouse=True)
def short_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model with random weights writes on until it may not."""
    monkeypatch.setattr("tunery.ml.benchmarks.NUMBER_TOKENS_MAX", 16)
    monkeypatch.setattr("tunery.ml.benchmarks.REFUSAL_TOKENS_MAX", 16)


def with_benchmarks(spec: ScoreSpec, folder: Path, most: int, **tasks: bytes) -> ScoreSpec:
    files = []
    for name, content in tasks.items():
        (folder / f"{name}.jsonl").write_bytes(content)
        path, digest = str(folder / f"{name}.jsonl"), sha256(content).hexdigest()
        files.append(BenchmarkFile(name=name, path=path, sha256=digest))
    return msgspec.structs.replace(spec, benchmarks=tuple(files), benchmark_items=most)


def by_id(item: ItemScore) -> str:
    return item.id


def scored(spec: ScoreSpec) -> Scores:
    code, _ = go(spec)
    assert code == ExitCode.FINISHED
    return decode_scores(Path(spec.out).read_bytes())


def test_choices_are_those_of_each_side_read_alone(
    spec: ScoreSpec, tiny: tuple[Path, str], tmp_path: Path
) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    content = choices_task()
    (asked,) = scored(with_benchmarks(spec, tmp_path, 100, things=content)).benchmarks
    task = read_task(content)
    assert (asked.name, asked.task, asked.kind, len(asked.items)) == (
        "things",
        "arc",
        "choices",
        24,
    )
    tokenizer = AutoTokenizer.from_pretrained(tiny[0])

    def chosen(model: Any, item: TaskItem) -> int:
        context = tokenizer(task.begin(item)).input_ids
        values = []
        for choice in item.choices:
            ids = tokenizer(f"{task.begin(item)} {choice}").input_ids
            with torch.no_grad():
                logs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
            of_choice = sum(float(logs[at - 1, ids[at]]) for at in range(len(context), len(ids)))
            values.append(of_choice / len(choice))
        return values.index(max(values))

    model: Any = AutoModelForCausalLM.from_pretrained(tiny[0], dtype=torch.float32).eval()
    assert [score.base_choice for score in asked.items] == [
        chosen(model, item) for item in task.items
    ]
    model = PeftModel.from_pretrained(model, spec.adapter_dir, autocast_adapter_dtype=False)
    assert [score.adapter_choice for score in asked.items] == [
        chosen(model, item) for item in task.items
    ]
    differing = [item.id for item in asked.items if item.base != item.adapter]
    assert [question.id for question in asked.questions] == differing


def test_a_base_model_is_asked_once_and_a_sample_is_the_same(
    spec: ScoreSpec, tmp_path: Path
) -> None:
    kept = msgspec.structs.replace(spec, base_scores_dir=str(tmp_path / "kept"))
    kept = with_benchmarks(
        kept,
        tmp_path,
        22,
        things=choices_task(40),
        true=shares_task(),
        sums=numbers_task(),
        locks=safety_task(20, 20),
    )
    first, again = go(kept)[1], go(kept)[1]
    assert first[-1]["sha256"] == again[-1]["sha256"]
    stages = [{event.get("stage") for event in events} for events in (first, again)]
    assert {"things_base_adapter", "true_base_adapter", "sums_base", "locks_base"} <= stages[0]
    assert {"things_adapter", "true_adapter", "sums_adapter", "locks_adapter"} <= stages[1]
    assert not {"things_base_adapter", "true_base_adapter", "sums_base"} & stages[1]
    stones, true, sums, locks = decode_scores(Path(kept.out).read_bytes()).benchmarks
    assert (len(stones.items), len(sums.items), len(locks.refusals)) == (22, 20, 22)
    assert all(0 < (item.base_share or 0) < 1 for item in true.items)
    assert {item.base_choice for item in sums.items} <= {0, 1}
    assert all(isinstance(score.base_refuses, bool) for score in locks.refusals)
    assert {score.prompt for score in locks.refusals} < {
        item.question for item in read_task(safety_task(20, 20)).items
    }


def test_shares_are_those_of_the_likelihoods_of_each_side_read_alone(
    spec: ScoreSpec, tiny: tuple[Path, str], tmp_path: Path
) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    content = shares_task()
    (asked,) = scored(with_benchmarks(spec, tmp_path, 100, true=content)).benchmarks
    task = read_task(content)
    assert (asked.kind, len(asked.items)) == ("shares", 24)
    tokenizer = AutoTokenizer.from_pretrained(tiny[0])

    def share(model: Any, item: TaskItem) -> float:
        context = tokenizer(item.question).input_ids
        weights = []
        for choice in item.choices:
            ids = tokenizer(f"{item.question} {choice}").input_ids
            with torch.no_grad():
                logs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
            of_choice = [logs[at - 1, ids[at]].double() for at in range(len(context), len(ids))]
            weights.append(float(sum(of_choice).exp()))
        return sum(weights[: item.true_choices]) / sum(weights)

    model: Any = AutoModelForCausalLM.from_pretrained(tiny[0], dtype=torch.float32).eval()
    base = [score.base_share for score in asked.items]
    assert base == pytest.approx([share(model, item) for item in task.items], abs=5e-5)
    model = PeftModel.from_pretrained(model, spec.adapter_dir, autocast_adapter_dtype=False)
    adapter = [score.adapter_share for score in asked.items]
    assert adapter == pytest.approx([share(model, item) for item in task.items], abs=5e-5)
    assert adapter != base
    assert len({score.group for score in asked.items}) == 24


def test_a_share_needs_likelihoods_that_are_numbers_and_no_large_ones() -> None:
    assert true_share([-1_000.0, -1_000.0, -1_000.0, -1_000.0], 1) == 0.25
    assert true_share([-1.0, float("-inf"), -2.0], 1) is None
    assert true_share([float("nan"), -1.0], 1) is None


def test_looks_one_after_the_other_end_in_the_scores_of_one_pass(
    spec: ScoreSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunery.gate.looks.LOOK_ITEMS_MIN", 8)
    tasks = {"things": choices_task(40), "sums": numbers_task(), "locks": safety_task(10, 10)}
    asked = with_benchmarks(spec, tmp_path, 30, **tasks)
    at_once = scored(asked)
    first = msgspec.structs.replace(asked, share_ppm=500_000, out=str(tmp_path / "first.json"))
    chosen, sums, locks = scored(first).benchmarks
    assert (len(chosen.items), len(sums.items), len(locks.refusals)) == (15, 10, 20)
    code, events = go(msgspec.structs.replace(asked, scored=first.out))
    assert code == ExitCode.FINISHED
    stages = {(event["stage"], event["total"]) for event in events if event.get("stage")}
    assert stages == {("things_base_adapter", 15), ("sums_base", 10), ("sums_adapter", 10)}
    both = decode_scores(Path(asked.out).read_bytes())
    for once, twice in zip(at_once.benchmarks, both.benchmarks, strict=True):
        assert sorted(once.items, key=by_id) == sorted(twice.items, key=by_id)
        assert (once.refusals, once.questions) == (twice.refusals, twice.questions)
    assert (both.items, both.holdout, both.answers) == (
        at_once.items,
        at_once.holdout,
        at_once.answers,
    )


def test_scores_of_other_models_are_not_gone_on_from(spec: ScoreSpec, tmp_path: Path) -> None:
    other = msgspec.structs.replace(scored(spec), adapter_sha256="f" * 64)
    (tmp_path / "other.json").write_bytes(encode_scores(other))
    with pytest.raises(WorkError, match="of other models"):
        go(msgspec.structs.replace(spec, scored=str(tmp_path / "other.json")))


def test_an_item_longer_than_the_model_reads_keeps_its_end(
    tiny: tuple[Path, str],
) -> None:
    from transformers import AutoTokenizer

    from tunery.ml.benchmarks import trees_of

    tokenizer = AutoTokenizer.from_pretrained(tiny[0])
    task = read_task(choices_task())
    whole, cut = trees_of(task, tokenizer, 1_000), trees_of(task, tokenizer, 12)
    assert all(len(tree.question) + max(map(len, tree.choices)) <= 13 for tree in cut)
    assert whole[1].question[-len(cut[1].question) :] == cut[1].question
    assert whole[1].choices == cut[1].choices


def test_likelihoods_that_are_no_numbers_choose_nothing() -> None:
    from tunery.ml.benchmarks import pick

    task = read_task(choices_task())
    values = [[-3.0, -2.0, -30.0]] * 23 + [[-1.0, float("nan"), -1.0]]
    picked = pick(values, task)
    assert picked[-1] == NO_CHOICE
    assert set(picked[:-1]) <= {0, 1, 2}


def test_a_file_that_is_no_benchmark_stops_the_scoring(
    spec: ScoreSpec, tmp_path: Path, make_shard: Callable[..., Path]
) -> None:
    with pytest.raises(WorkError, match="benchmark things: line 1 is no header"):
        go(with_benchmarks(spec, tmp_path, 20, things=b"x\n"))
