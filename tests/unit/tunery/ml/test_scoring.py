import io
import json
import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch

from tunery.data.tokens.base_variants import write_tokenizer
from tunery.ml.events import EventWriter
from tunery.ml.language import load_tokenizer
from tunery.work.codec import decode_scores
from tunery.work.exits import ExitCode, WorkError
from tunery.work.own_chat import OwnChat
from tunery.work.scores import NO_CHOICE, Scores
from tunery.work.spec import ScoreSpec

pytestmark = [
    pytest.mark.train,
    # peft 0.21 asks transformers 5 by a name that is going away
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]
ITEMS = 9


@pytest.fixture(scope="module")
def adapter(tiny: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(5)
    base = AutoModelForCausalLM.from_pretrained(tiny[0], dtype=torch.float32)
    model: Any = get_peft_model(
        base, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.3)
    directory = tmp_path_factory.mktemp("adapter")
    model.save_pretrained(directory)
    return directory


@pytest.fixture
def spec(
    tiny: tuple[Path, str],
    adapter: Path,
    tmp_path: Path,
    make_shard: Callable[..., Path],
    documents: Callable[[int, int], list[list[list[int]]]],
) -> ScoreSpec:
    items, rows = tmp_path / "items.jsonl", tmp_path / "validation.jsonl"
    items.write_text(
        "".join(
            json.dumps(
                {
                    "id": f"i{n}",
                    "question": f"Which is thing {n}?",
                    "choices": [f"thing {n}", "a lamp", "the long grey harbour wall"],
                    "answer_index": 0,
                    "category": "things",
                }
            )
            + "\n"
            for n in range(ITEMS)
        )
    )
    rows.write_text('{"row": 1, "prompt_ids": [5, 6], "reference": "three"}\n' * 5)
    return ScoreSpec(
        base_dir=str(tiny[0]),
        base_sha256=tiny[1],
        adapter_dir=str(adapter),
        out=str(tmp_path / "results" / "scores.json"),
        items=str(items),
        valid_shards=(str(make_shard(documents(2, 2))),),
        valid_rows=str(rows),
        prompts=("Who are you?",),
        precision="fp32",
        threads=1,
        generated_max=3,
        new_tokens_max=4,
        answer_tokens_max=4,
    )


def go(
    spec: ScoreSpec, must_stop: Callable[[], bool] = lambda: False
) -> tuple[int, list[dict[str, Any]]]:
    from tunery.ml.scoring import score

    stream = io.BytesIO()
    code = score(spec, EventWriter(stream, time.monotonic()), must_stop)
    return code, [json.loads(line) for line in stream.getvalue().splitlines()]


def test_results_are_paired_and_read_by_the_verdict(spec: ScoreSpec) -> None:
    code, events = go(spec)
    assert code == ExitCode.FINISHED
    content = Path(spec.out).read_bytes()
    assert (events[-1]["results"], events[-1]["bytes"]) == (spec.out, len(content))
    scores = msgspec.json.decode(content, type=Scores)
    assert [item.id for item in scores.items] == [f"i{n}" for n in range(ITEMS)]
    assert (scores.holdout.rows, scores.holdout.generated) == (4, 3)
    assert scores.holdout.base_loss != scores.holdout.adapter_loss
    raw = json.loads(content)
    for item in raw["items"]:
        assert item["base"] == (item["base_choice"] == 0)
        assert item["adapter"] == (item["adapter_choice"] == 0)
    assert raw["holdout"]["base_perplexity"] == pytest.approx(math.exp(raw["holdout"]["base_loss"]))
    assert scores.answers[0].prompt == "Who are you?"
    differing = [item.id for item in scores.items if item.base != item.adapter]
    assert [question.id for question in scores.questions] == differing
    assert all(question.choices[1] == "a lamp" for question in scores.questions)
    assert scores.answers[0].base != scores.answers[0].adapter


def test_bases_f7_both_sides_are_asked_with_the_tokenizer_of_the_version(
    spec: ScoreSpec, tmp_path: Path
) -> None:
    def answers(asked: ScoreSpec) -> tuple[list[str], list[str]]:
        go(asked)
        scores = msgspec.json.decode(Path(asked.out).read_bytes(), type=Scores)
        return [pair.base for pair in scores.answers], [pair.adapter for pair in scores.answers]

    spec = msgspec.structs.replace(spec, prompts=("Who?", "The long grey wall"))
    chat = OwnChat("{{ 'the same for all of them' }}<|im_end|>", ("<|im_start|>",))
    own = write_tokenizer(Path(spec.base_dir), chat, tmp_path / "own")
    owned = msgspec.structs.replace(spec, tokenizer_dir=str(own))
    for plain, asked in zip(answers(spec), answers(owned), strict=True):
        assert (len(set(plain)), len(set(asked))) == (2, 1)
    model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=2))
    assert load_tokenizer(spec, model).eos_token_id == model.generation_config.eos_token_id == 2
    load_tokenizer(owned, model)
    assert model.generation_config.eos_token_id == [1, 2]


def test_the_same_inputs_give_the_same_file(spec: ScoreSpec) -> None:
    digests = {go(spec)[1][-1]["sha256"] for _ in range(2)}
    assert len(digests) == 1


def test_offload_a_base_that_outgrows_the_device_is_scored_to_the_same_file(
    spec: ScoreSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = go(spec)[1][-1]["sha256"]
    monkeypatch.setattr("tunery.ml.device.outgrows", lambda *_: True)
    assert go(spec)[1][-1]["sha256"] == whole


def test_first_hour2_u7_a_base_that_was_scored_here_is_not_asked_again(
    spec: ScoreSpec, tmp_path: Path
) -> None:
    plain = go(spec)[1][-1]["sha256"]
    kept = msgspec.structs.replace(spec, base_scores_dir=str(tmp_path / "kept"))
    first, again = go(kept)[1], go(kept)[1]
    assert {first[-1]["sha256"], again[-1]["sha256"]} == {plain}
    stages = [{event["stage"] for event in events if "stage" in event} for events in (first, again)]
    assert stages[0] - stages[1] == {"items", "answers_base"}
    assert stages[1] - stages[0] == {"items_adapter"}


def test_first_hour2_u7_the_gate_after_a_small_job_costs_few_passes(
    spec: ScoreSpec,
    tmp_path: Path,
    make_shard: Callable[..., Path],
    documents: Callable[[int, int], list[list[list[int]]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another seed has other validation rows, so the base model is asked about them anew."""
    from tunery.ml import scoring

    passes: list[int] = []

    def counted(*inputs: Any, **named: Any) -> Any:
        pair = load_pair(*inputs, **named)
        pair.trained.get_base_model().register_forward_pre_hook(lambda *_: passes.append(1))
        return pair

    load_pair = scoring.load_pair
    monkeypatch.setattr(scoring, "load_pair", counted)
    spec = msgspec.structs.replace(
        spec,
        base_scores_dir=str(tmp_path / "kept"),
        new_tokens_max=40,
        answer_tokens_max=40,
    )
    go(spec)
    passes.clear()
    other = tmp_path / "other.jsonl"
    other.write_text('{"row": 1, "prompt_ids": [7, 6], "reference": "four"}\n' * 5)
    shard = make_shard(documents(3, 2), "other")
    go(msgspec.structs.replace(spec, valid_rows=str(other), valid_shards=(str(shard),)))
    items, losses, first_words_of_the_base, answers = 1, 2 * 3, 1, 40
    assert len(passes) == items + losses + first_words_of_the_base + answers


def test_first_hour2_u7_rows_and_prompts_are_answered_at_once_with_the_same_texts(
    spec: ScoreSpec,
) -> None:
    totals = []
    for rows in (spec.valid_rows, None):
        events = go(msgspec.structs.replace(spec, valid_rows=rows))[1]
        (answers,) = decode_scores(Path(spec.out).read_bytes()).answers
        of_base = [event for event in events if event.get("stage") == "answers_base"]
        totals.append((of_base[-1]["total"], answers))
    assert [total for total, _ in totals] == [4, 1]
    assert totals[0][1] == totals[1][1]
    longer = go(msgspec.structs.replace(spec, answer_tokens_max=5))[1]
    stages = {event["stage"]: event["total"] for event in longer if "stage" in event}
    assert (stages["holdout_base"], stages["answers_base"]) == (3, 1)


def test_first_hour2_u7_a_smaller_gate_asks_always_the_same_items_and_fewer_prompts(
    spec: ScoreSpec,
) -> None:
    from tunery.ml.score import with_bundled_items

    small = msgspec.structs.replace(spec, items_max=4, prompts=None, prompts_max=0)
    names = []
    for _ in range(2):
        go(with_bundled_items(small))
        scores = decode_scores(Path(spec.out).read_bytes())
        names.append([item.id for item in scores.items])
        assert scores.answers == ()
    assert names[0] == names[1]
    assert len(names[0]) == 4


def test_answers_of_the_base_to_a_tenants_prompts_are_not_kept(
    spec: ScoreSpec, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    go(msgspec.structs.replace(spec, base_scores_dir=str(kept), own_prompts=True))
    scores = [json.loads(file.read_bytes())["scores"] for file in kept.iterdir()]
    assert not any(each["answers"] for each in scores)
    holdout = next(each["holdout"] for each in scores if "holdout" in each)
    assert [type(figure) for figure in holdout] == [float, int]


def test_the_base_side_is_the_base(spec: ScoreSpec, tiny: tuple[Path, str]) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from tunery.ml import choices, generation
    from tunery.ml.sides import Sides

    go(spec)
    raw = json.loads(Path(spec.out).read_text())
    model = AutoModelForCausalLM.from_pretrained(tiny[0], dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(tiny[0])
    assert spec.items is not None
    trees = [choices.tokenise(item, tokenizer) for item in choices.read_items(Path(spec.items))]
    assert choices.pick(Sides(model), trees)[0] == [item["base_choice"] for item in raw["items"]]
    prompts = [generation.render(tokenizer, prompt) for prompt in spec.prompts or ()]
    alone = generation.answers(model, tokenizer, prompts, new_tokens_max=4)
    assert alone == [answer["base"] for answer in raw["answers"]]


def test_without_validation_rows_the_holdout_is_empty(spec: ScoreSpec) -> None:
    go(msgspec.structs.replace(spec, valid_shards=(), valid_rows=None, prompts=()))
    holdout = msgspec.json.decode(Path(spec.out).read_bytes(), type=Scores).holdout
    assert (holdout.rows, holdout.base_loss, holdout.generated) == (0, None, 0)


def test_own_rows_are_answered_by_both_and_measured(spec: ScoreSpec) -> None:
    assert spec.valid_rows is not None
    lines = [
        {"row": n, "prompt": f"lamp {n}", "prompt_ids": [5, 6, n % 4], "reference": "three"}
        for n in range(30)
    ]
    Path(spec.valid_rows).write_text("".join(json.dumps(line) + "\n" for line in lines))
    asked = '["chrf", {"type": "regex", "pattern": "."}]'
    replaced = msgspec.structs.replace(spec, measures=asked, measured_rows=20)
    _, events = go(replaced)
    scores = decode_scores(Path(spec.out).read_bytes())
    assert scores.measures == ("chrf", "regex")
    assert (len(scores.rows), len({row.row for row in scores.rows})) == (20, 20)
    assert len({row.group for row in scores.rows}) == 4, "rows with the same prompt belong together"
    assert any(row.base != row.adapter for row in scores.rows)
    assert all(row.base_scores[1] == float(bool(row.base)) for row in scores.rows)
    assert {"measured_base", "measured_adapter"} <= {event.get("stage") for event in events}
    go(spec)
    assert decode_scores(Path(spec.out).read_bytes()).rows == ()


def test_training_m9_an_adapter_that_gives_no_numbers_is_scored_as_such(
    spec: ScoreSpec, adapter: Path, tmp_path: Path
) -> None:
    """Finding M9: NaN chose the first answer, which was right, and the file could not be read."""
    from safetensors.torch import load_file, save_file

    from tunery.ml.adapters import WEIGHTS

    huge = tmp_path / "huge"
    shutil.copytree(adapter, huge)
    tensors = {name: tensor * 1e20 for name, tensor in load_file(adapter / WEIGHTS).items()}
    assert all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values())
    save_file(tensors, huge / WEIGHTS, metadata={"format": "pt"})
    code, _ = go(msgspec.structs.replace(spec, adapter_dir=str(huge)))
    assert code == ExitCode.FINISHED
    scores = decode_scores(Path(spec.out).read_bytes())
    assert scores.not_finite == ("adapter",)
    assert {(item.adapter, item.adapter_choice) for item in scores.items} == {(False, NO_CHOICE)}
    assert NO_CHOICE not in {item.base_choice for item in scores.items}
    assert (scores.holdout.adapter_loss, scores.holdout.adapter_perplexity) == (None, None)
    assert scores.holdout.base_loss is not None


def test_asked_to_stop_it_leaves_and_writes_nothing(spec: ScoreSpec) -> None:
    code, events = go(spec, lambda: True)
    assert code == ExitCode.PREEMPTED
    assert events[-1]["type"] == "preempted"
    assert not Path(spec.out).exists()


@pytest.mark.parametrize(
    ("changes", "cause", "what"),
    [
        ({"base_sha256": "0" * 64}, "bad_node", "hash to"),
        ({"adapter_dir": "/nowhere"}, "user", "does not load"),
    ],
)
def test_inputs_that_cannot_be_scored_are_named(
    spec: ScoreSpec, changes: dict[str, Any], cause: str, what: str
) -> None:
    with pytest.raises(WorkError) as caught:
        go(msgspec.structs.replace(spec, **changes))
    assert caught.value.cause == cause
    assert what in caught.value.message


def test_scoring_after_qlora_both_sides_are_in_four_bits(spec: ScoreSpec) -> None:
    """So the base answers as it did in the training, and not as it does in full precision."""
    losses = {}
    for adaptation in ("lora", "qlora"):
        go(msgspec.structs.replace(spec, adaptation=adaptation))
        holdout = decode_scores(Path(spec.out).read_bytes()).holdout
        losses[adaptation] = [holdout.base_loss, holdout.adapter_loss]
    assert losses["qlora"] != losses["lora"]
    assert losses["qlora"] == pytest.approx(losses["lora"], rel=0.1)
