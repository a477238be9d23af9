"""The model of a training: in four bits, layers that are named, and families."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.bases import FAMILIES, write_family
from tests.unit.tunery.ml.trainings import HYPER, go, of, random_base, resumed, tiny_mixture
from tests.unit.tunery.ml.trl_trainers import losses_of, sft_trainer
from tunery.data.preparing import prepare
from tunery.ml.adapters import verify_loads
from tunery.ml.packed import read_rows
from tunery.plan.memory import FUSED_FAMILIES
from tunery.platform.blobs.base_files import hash_base
from tunery.work.exits import ExitCode, WorkError
from tunery.work.spec import StartingAdapter, TrainSpec

pytestmark = [
    pytest.mark.train,
    # peft 0.21 and trl 1.16 ask transformers 5 by names that are going away
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"target_modules": ("no_such",)}, "target_modules names 'no_such'"),
        ({"target_modules": ("q_proj", "no_such")}, "target_modules names 'no_such'"),
        ({"rank_pattern": (("no_such", 4),)}, "rank_pattern names 'no_such'"),
        ({"modules_to_save": ("no_such",)}, "modules_to_save names 'no_such'"),
    ],
)
def test_layers_that_the_base_does_not_have_are_named(
    spec: TrainSpec, changes: dict[str, object], what: str
) -> None:
    with pytest.raises(WorkError) as caught:
        go(msgspec.structs.replace(spec, hyper=msgspec.structs.replace(HYPER, **changes)))
    assert caught.value.cause == "user"
    assert what in caught.value.message
    assert "q_proj" in caught.value.advice


def test_training_a_mixture_that_takes_no_dropout_says_so(
    spec: TrainSpec, tiny: tuple[Path, str], tmp_path: Path
) -> None:
    sha256 = random_base(tiny_mixture(vocabulary=49_152), tiny[0], tmp_path / "mixture")
    mixture = msgspec.structs.replace(
        spec, base_dir=str(tmp_path / "mixture"), base_sha256=sha256, valid_shards=()
    )
    with pytest.raises(WorkError, match="the experts of tiny-llama take no dropout") as caught:
        go(mixture)
    assert caught.value.cause == "user"
    assert "lora.dropout to 0" in caught.value.advice


def test_training_weights_in_four_bits_stay_as_they_are_without_gradients(
    spec: TrainSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on processors with AVX512-BF16, for which bitsandbytes lays them out anew."""
    import torch
    from bitsandbytes.nn import modules

    from tunery.ml.model import load_base

    monkeypatch.setattr(modules, "has_avx512bf16", lambda: True)
    base = load_base(spec.base_dir, torch.float32, torch.device("cpu"), four_bits=True).eval()
    before = {name: weight.data.clone() for name, weight in base.named_parameters()}
    with torch.no_grad():
        base(torch.tensor([[1, 2, 3]]))
    assert all(torch.equal(weight, before[name]) for name, weight in base.named_parameters())


def base_tokenizer(spec: TrainSpec) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(spec.base_dir)


@pytest.mark.parametrize(("adaptation", "rate"), [("qlora", 0.01), ("full", 0.001)])
def test_training_qlora_and_full_have_the_first_20_losses_of_trl(
    spec: TrainSpec,
    tmp_path: Path,
    make_shard: Callable[..., Path],
    documents: Callable[[int, int], list[list[list[int]]]],
    adaptation: Any,
    rate: float,
) -> None:
    """Rows of one document each: TRL alone does not keep packed ones apart."""
    hyper = msgspec.structs.replace(
        HYPER, adaptation=adaptation, accumulation=1, dropout=0.0, scheduler="constant", warmup=0.0
    )
    hyper = msgspec.structs.replace(hyper, learning_rate=rate)
    shard = str(make_shard(documents(10, 1), "single"))
    spec = msgspec.structs.replace(spec, hyper=hyper, train_shards=(shard,), valid_shards=())
    _, events = go(msgspec.structs.replace(spec, checkpoint_every_steps=100))
    losses = [event["loss"] for event in of(events, "step")]
    rows = [read_rows(spec.train_shards, vocabulary=100_000).batch([at]) for at in range(10)]
    data = [{key: row[key][0].tolist() for key in ("input_ids", "labels")} for row in rows]
    assert len(losses) == 20
    assert losses == pytest.approx(losses_of(sft_trainer(spec, data, tmp_path / "trl")), abs=1e-4)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("changed", "precision"),
    [({}, "bf16"), ({"dora": True}, "fp32"), ({"modules_to_save": ("model.norm",)}, "fp32")],
    ids=str,
)
def test_training_qlora_resumes_to_the_byte_with_other_knobs(
    spec: TrainSpec, changed: dict[str, Any], precision: str
) -> None:
    hyper = msgspec.structs.replace(HYPER, adaptation="qlora", **changed)
    spec = msgspec.structs.replace(spec, hyper=hyper, precision=precision)
    _, whole = go(spec)
    code, rest = go(resumed(spec, of(whole, "checkpoint")[3], out="rest"))
    assert (code, rest[0]["resumed_from_step"]) == (ExitCode.FINISHED, 4)
    assert rest[-1]["adapter_sha256"] == whole[-1]["adapter_sha256"]
    assert "bitsandbytes" in dict(whole[0]["environment"])


def test_training_qlora_does_not_go_on_from_a_checkpoint_of_lora(spec: TrainSpec) -> None:
    _, whole = go(spec)
    hyper = msgspec.structs.replace(HYPER, adaptation="qlora")
    other = msgspec.structs.replace(spec, hyper=hyper)
    _, events = go(resumed(other, of(whole, "checkpoint")[0], out="four-bits"))
    assert events[0]["resumed_from_step"] == 0
    assert "belongs to another run: hyper" in events[0]["skipped"][0]["reason"]


def test_training_qlora_trains_no_layer_in_four_bits_as_a_whole(spec: TrainSpec) -> None:
    hyper = msgspec.structs.replace(HYPER, adaptation="qlora", modules_to_save=("q_proj",))
    with pytest.raises(WorkError, match="'q_proj', whose weights are in four bits") as caught:
        go(msgspec.structs.replace(spec, hyper=hyper))
    assert "lm_head" in caught.value.advice


def beginning_with(spec: TrainSpec, finished: dict[str, Any], out: str) -> TrainSpec:
    """A training that begins with the weights of a finished one."""
    start = StartingAdapter(
        name="ft:x", dir=finished["adapter_dir"], sha256=finished["adapter_sha256"]
    )
    return resumed(msgspec.structs.replace(spec, start=start), out=out)


def test_training_on_begins_where_another_ended_and_resumes_to_the_byte(spec: TrainSpec) -> None:
    plain = msgspec.structs.replace(HYPER, dropout=0.0)
    spec = msgspec.structs.replace(spec, hyper=plain, checkpoint_every_steps=2)
    _, first = go(spec)
    _, second = go(beginning_with(spec, first[-1], "second"))
    losses = [[event["loss"] for event in of(events, "step")] for events in (first, second)]
    assert losses[1][0] < losses[0][0] - 0.5, "it knows the rows"
    assert second[-1]["adapter_sha256"] != first[-1]["adapter_sha256"]
    again = resumed(beginning_with(spec, first[-1], "second"), of(second, "checkpoint")[0], out="3")
    _, rest = go(again)
    assert (rest[0]["resumed_from_step"], rest[0]["skipped"]) == (2, [])
    assert rest[-1]["adapter_sha256"] == second[-1]["adapter_sha256"]
    _, other = go(resumed(spec, of(second, "checkpoint")[0], out="other"))
    assert "another run: start was" in other[0]["skipped"][0]["reason"]


def test_training_on_from_an_adapter_of_another_form_is_refused(spec: TrainSpec) -> None:
    _, first = go(msgspec.structs.replace(spec, checkpoint_every_steps=100))
    for changed in ({"rank": 4}, {"target_modules": ("q_proj",)}):
        hyper = msgspec.structs.replace(HYPER, **changed)
        other = msgspec.structs.replace(spec, hyper=hyper)
        with pytest.raises(WorkError, match="weights of ft:x are of another adapter") as caught:
            go(beginning_with(other, first[-1], "other"))
        assert caught.value.cause == "user"


@pytest.mark.parametrize("family", FAMILIES)
def test_training_every_family_takes_a_step(family: str, spec: TrainSpec, tmp_path: Path) -> None:
    """Gemma 2 and gpt-oss have no SDPA, and did not load: it was demanded of all."""
    folder = write_family(family, tmp_path / "base")
    hyper = msgspec.structs.replace(HYPER, max_steps=1, dropout=0.0)
    spec = msgspec.structs.replace(
        spec, base_dir=str(folder), base_sha256=hash_base(folder), valid_shards=(), hyper=hyper
    )
    code, events = go(spec)
    assert (code, len(of(events, "step"))) == (ExitCode.FINISHED, 1)
    assert "o_proj" in of(events, "note")[0]["message"]


def test_training_continued_on_plain_text_has_the_losses_of_trl(
    spec: TrainSpec, tmp_path: Path
) -> None:
    """From the file to the losses: every token is learnt, the end of the text too."""
    texts = [f"Lamp {number}: " + "the wall is grey. " * (number + 12) for number in range(10)]
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(f"{json.dumps({'text': text})}\n" for text in texts))
    prepared = prepare(
        path, Path(spec.base_dir), tmp_path / "rows", max_length=128, validation_fraction_ppm=0
    )
    shards = (str(prepared.directory / "train.safetensors"),)
    hyper = msgspec.structs.replace(
        HYPER, accumulation=1, dropout=0.0, scheduler="constant", warmup=0.0
    )
    spec = msgspec.structs.replace(spec, hyper=hyper, train_shards=shards, valid_shards=())
    rows, tokenizer = read_rows(shards, vocabulary=100_000).rows, base_tokenizer(spec)
    assert all(len(row.lengths) == 1 and bool(row.is_label[1:].all()) for row in rows)
    data = [{"text": tokenizer.decode(row.input_ids[:-1].tolist())} for row in rows]
    assert sorted(line["text"] for line in data) == sorted(texts)
    _, events = go(msgspec.structs.replace(spec, checkpoint_every_steps=100))
    losses = [event["loss"] for event in of(events, "step")]
    assert losses == pytest.approx(losses_of(sft_trainer(spec, data, tmp_path / "trl")), abs=1e-4)


def changed_base(spec: TrainSpec, folder: Path, tokens: tuple[str, ...] = (), **saved: Any) -> Any:
    """The spec on a copy of its base; `tokens`: added to it, `saved`: how it is saved."""
    from transformers import AutoModelForCausalLM

    tokenizer = base_tokenizer(spec)
    model = AutoModelForCausalLM.from_pretrained(spec.base_dir)
    if tokens:
        tokenizer.add_tokens(list(tokens))
        model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(folder, **saved)
    tokenizer.save_pretrained(folder)
    base = {"base_dir": str(folder), "base_sha256": hash_base(folder)}
    return msgspec.structs.replace(spec, **base, out_dir=str(folder.with_name("changed")))


def test_bad_input_training_a_base_in_many_files_gives_the_same_bytes(
    spec: TrainSpec, tmp_path: Path
) -> None:
    sharded = changed_base(spec, tmp_path / "base", max_shard_size="100kB")
    shards = sorted((tmp_path / "base").glob("model-*-of-*.safetensors"))
    assert len(shards) > 1
    assert (tmp_path / "base" / "model.safetensors.index.json").exists()
    _, whole = go(spec)
    _, events = go(sharded)
    assert events[-1]["adapter_sha256"] == whole[-1]["adapter_sha256"]
    shards[-1].unlink()
    with pytest.raises(WorkError, match=shards[-1].name) as caught:
        go(sharded)
    assert caught.value.cause == "bad_node"


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`:UserWarning")
def test_bad_input_training_tokens_that_were_added_are_learnt_with_their_tables(
    spec: TrainSpec, tmp_path: Path, make_shard: Callable[..., Path]
) -> None:
    """The base ties its tables; an adapter alone cannot learn a row of them."""
    added = len(base_tokenizer(spec))
    shard = str(make_shard([[[5, 6, 7, added, added + 1, added]] for _ in range(6)], "added"))
    rows = msgspec.structs.replace(spec, train_shards=(shard,), valid_shards=())
    with pytest.raises(WorkError, match="token ids outside 0 to") as caught:
        go(rows)
    assert caught.value.cause == "bad_data"
    wider = changed_base(rows, tmp_path / "base", tokens=("<lamp>", "<door>"))
    hyper = msgspec.structs.replace(HYPER, modules_to_save=("embed_tokens", "lm_head"), dropout=0.0)
    wider = msgspec.structs.replace(wider, hyper=hyper)
    _, whole = go(wider)
    losses = [event["loss"] for event in of(whole, "step")]
    assert losses[-1] < losses[0] - 1
    _, rest = go(resumed(wider, of(whole, "checkpoint")[2], out="rest"))
    assert rest[-1]["adapter_sha256"] == whole[-1]["adapter_sha256"]
    proof = verify_loads(Path(whole[-1]["adapter_dir"]), Path(wider.base_dir))
    assert proof.base_unchanged
    assert proof.adapter_effect_max > 0.1


def test_bad_input_training_one_row_is_a_step_each_epoch(
    spec: TrainSpec, make_shard: Callable[..., Path]
) -> None:
    """With one document in a packed row, isolation of documents cannot be checked."""
    shard = str(make_shard([[[5, 6, 7, 8, 9, 10]]], "one"))
    single = msgspec.structs.replace(spec, train_shards=(shard,), valid_shards=())
    code, events = go(single)
    assert (code, len(of(events, "step"))) == (ExitCode.FINISHED, HYPER.n_epochs)
    assert events[0]["packing_difference_nats"] is None
    _, rest = go(resumed(single, of(events, "checkpoint")[0], out="rest"))
    assert rest[-1]["adapter_sha256"] == events[-1]["adapter_sha256"]


@pytest.mark.parametrize("family", sorted(FUSED_FAMILIES))
def test_models_that_an_accelerator_computes_have_ligers_kernels_where_they_fit(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from tunery.ml.model import load_base, use_fused_kernels

    folder = write_family(family, tmp_path / family)
    model = AutoModelForCausalLM.from_pretrained(folder)
    own = type(model).__module__
    for name, value in list(vars(sys.modules[own]).items()):  # Liger changes some of them
        monkeypatch.setattr(sys.modules[own], name, value)
    model.config.hidden_act = "gelu"
    use_fused_kernels(model)
    assert model.model.layers[0].mlp.forward.__module__ == own

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    fused = load_base(str(folder), torch.float32, torch.device("cpu"), four_bits=False)
    layer = fused.model.layers[0]
    computed = [layer.mlp.forward, layer.input_layernorm.forward, fused.model.norm.forward]
    computed.append(vars(sys.modules[own])["apply_rotary_pos_emb"])
    assert {each.__module__.partition(".")[0] for each in computed} == {"liger_kernel"}
    assert fused.forward.__module__ == own  # the head is ours
