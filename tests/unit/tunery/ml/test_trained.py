"""Whole models: every weight is trained, and what is left is loaded without its base."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file

from tests.bases import FAMILIES, write_family
from tests.unit.tunery.ml.trainings import HYPER, STEPS, figures, go, of, resumed
from tunery.data.tokens.base_variants import write_tokenizer
from tunery.ml import trained
from tunery.work.artifact import check_names
from tunery.work.exits import WorkError
from tunery.work.own_chat import OwnChat
from tunery.work.spec import StartingAdapter, TrainSpec

pytestmark = [
    pytest.mark.train,
    # peft 0.21 and trl 1.16 ask transformers 5 by names that are going away
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]
TOKENS = torch.arange(32).unsqueeze(0) * 37 % 1_000
FULL = msgspec.structs.replace(HYPER, adaptation="full", learning_rate=1e-3, weight_decay=0.1)


@pytest.fixture
def full(spec: TrainSpec) -> TrainSpec:
    return msgspec.structs.replace(spec, hyper=FULL)


def logits(folder: Path, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Logits of the model in a folder."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    with torch.no_grad():
        result: torch.Tensor = model(TOKENS).logits
    return result


def test_training_full_leaves_a_model_that_is_loaded_without_its_base(full: TrainSpec) -> None:
    from transformers import AutoTokenizer

    _, events = go(full)
    folder = Path(events[-1]["adapter_dir"])
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= {
        file["name"] for file in events[-1]["files"]
    }
    before, after = (
        load_file(path / "model.safetensors") for path in (Path(full.base_dir), folder)
    )
    assert after.keys() == before.keys(), "tied weights are written once"
    moved = [name for name in after if not torch.equal(after[name].float(), before[name].float())]
    assert sorted(moved) == sorted(after), "every weight is trained"
    assert not torch.equal(logits(folder), logits(Path(full.base_dir)))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.chat_template == AutoTokenizer.from_pretrained(full.base_dir).chat_template
    losses = [event["valid_loss"] for event in of(events, "eval")]
    assert losses[-1] < losses[0]
    assert of(events, "note")[0]["message"].endswith("parameters are trained")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_training_full_resumes_from_any_step_to_the_byte(full: TrainSpec, precision: str) -> None:
    hyper = msgspec.structs.replace(FULL, best_checkpoint=True)
    full = msgspec.structs.replace(full, precision=precision, hyper=hyper)
    _, whole = go(full)
    checkpoints = of(whole, "checkpoint")
    assert len(checkpoints) == STEPS
    for checkpoint in (checkpoints[0], checkpoints[3], checkpoints[5]):
        step = checkpoint["step"]
        _, events = go(resumed(full, checkpoint, out=f"again-{step}"))
        assert events[0]["resumed_from_step"] == step
        assert events[-1]["files"] == whole[-1]["files"]
        assert figures(of(events, "step")) == figures(of(whole, "step")[step:])
        again = {event["step"]: event["manifest_sha256"] for event in of(events, "checkpoint")}
        assert again == {event["step"]: event["manifest_sha256"] for event in checkpoints[step:]}


def test_training_full_a_resume_reads_the_weights_once(
    full: TrainSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights may be as large as the free memory; a resume read them three times."""
    from tunery.ml.adamw import AdapterAdamW

    _, whole = go(full)
    restore, read = AdapterAdamW.restore, []

    def counting(self: AdapterAdamW, directory: Path) -> None:
        read.append(directory)
        restore(self, directory)

    monkeypatch.setattr(AdapterAdamW, "restore", counting)
    _, events = go(resumed(full, of(whole, "checkpoint")[4], out="again"))
    assert len(read) == 1
    assert events[-1]["files"] == whole[-1]["files"]


def test_training_full_that_ended_early_leaves_the_same_bytes_when_it_is_resumed(
    full: TrainSpec,
) -> None:
    """Its attempt was lost between the last checkpoint and the end."""
    hyper = msgspec.structs.replace(
        FULL, eval_every_steps=1, early_stopping_patience=1, learning_rate=0.5
    )
    full = msgspec.structs.replace(full, hyper=hyper)
    _, whole = go(full)
    last = of(whole, "checkpoint")[-1]
    assert last["step"] < STEPS
    _, events = go(resumed(full, last, out="again"))
    assert of(events, "step") == []
    assert events[-1]["files"] == whole[-1]["files"]


@pytest.mark.parametrize("name", ["checkpoint", "version"])
def test_training_full_goes_on_from_a_model_or_a_checkpoint(full: TrainSpec, name: str) -> None:
    _, first = go(full)
    folder = first[-1]["adapter_dir"] if name == "version" else of(first, "checkpoint")[-1]["dir"]
    start = StartingAdapter(name=name, dir=folder, sha256=first[-1]["adapter_sha256"])
    _, second = go(resumed(msgspec.structs.replace(full, start=start), out="second"))
    assert of(second, "step")[0]["loss"] == pytest.approx(of(first, "step")[-1]["loss"], rel=0.2)
    assert of(second, "eval")[-1]["valid_loss"] < of(first, "eval")[-1]["valid_loss"]


def test_training_full_with_weights_that_are_not_finite_is_not_published(
    full: TrainSpec, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(full.base_dir, dtype=torch.float32)
    with torch.no_grad():
        model.model.norm.weight[0] = torch.inf
    with pytest.raises(WorkError, match=r"'model\.norm\.weight' hold NaN or infinity"):
        trained.write_trained(
            model, trained.trained_tensors(model), "tiny", Path(full.base_dir), tmp_path / "whole"
        )
    assert not (tmp_path / "whole").exists()


@pytest.mark.parametrize("family", FAMILIES)
def test_training_full_writes_the_names_that_a_base_of_each_family_has(
    family: str, tmp_path: Path
) -> None:
    """The experts of a mixture have other names in a file than in the model."""
    from transformers import AutoModelForCausalLM

    base = write_family(family, tmp_path / "base")
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    written = tmp_path / "whole"
    trained.write_trained(model, trained.trained_tensors(model), family, base, written)
    names = [load_file(folder / "model.safetensors").keys() for folder in (base, written)]
    assert names[0] == names[1]
    assert torch.equal(logits(written), logits(base))


def test_training_full_of_a_quantised_base_is_refused(
    full: TrainSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunery.ml import model as models

    load: Callable[..., Any] = models.load_base
    monkeypatch.setattr(models, "load_base", lambda *a, **k: load(*a, **k).requires_grad_(False))
    with pytest.raises(WorkError, match="are quantised and cannot be trained") as caught:
        go(full)
    assert caught.value.cause == "user"
    assert "training.adaptation" in caught.value.advice


@pytest.mark.parametrize("adaptation", ["lora", "full"])
def test_bases_f7_what_was_trained_with_a_template_of_its_own_has_it_beside_its_weights(
    spec: TrainSpec, tmp_path: Path, adaptation: str
) -> None:
    from transformers import AutoTokenizer, GenerationConfig

    chat = OwnChat("{{ messages[0]['content'] }}<|im_end|>", ("<|im_start|>",))
    own = write_tokenizer(Path(spec.base_dir), chat, tmp_path / "own")
    hyper = HYPER if adaptation == "lora" else FULL
    _, events = go(msgspec.structs.replace(spec, hyper=hyper, tokenizer_dir=str(own)))
    folder = Path(events[-1]["adapter_dir"])
    names = {file["name"] for file in events[-1]["files"]}
    check_names(tuple(names))
    assert {"tokenizer.json", "chat_template.jinja", "generation_config.json"} <= names
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert (tokenizer.chat_template, tokenizer.eos_token) == (chat.template, "<|im_start|>")
    assert GenerationConfig.from_pretrained(folder).eos_token_id[0] == tokenizer.eos_token_id
