import json
from pathlib import Path

import pytest

from services.gateway.models.base_folders import describe
from tests.bases import FAMILIES, write_family
from tests.hub_server import HubServer, serving
from tunery.data.tokens.tokenizer import Tokenizer
from tunery.local.hub import Hub
from tunery.ml.base import gguf_file, main
from tunery.platform.blobs.base_files import hash_base


def test_the_wheel_has_the_weights() -> None:
    assert gguf_file().stat().st_size > 50_000_000


def test_an_unknown_word_shows_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["melt", "x"]) == 64
    assert "convert | tiny" in capsys.readouterr().err


def test_its_output_is_one_line_whatever_libraries_print(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """DeepSpeed does, where it is installed: Accelerate imports it."""
    monkeypatch.setattr("tunery.ml.base.tiny", lambda _dest: print("[WARNING] on the CPU"))
    monkeypatch.setattr("tunery.ml.base.hash_base", lambda _dest: "5a17")
    assert main(["tiny", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["sha256"] == "5a17"


@pytest.mark.train
def test_the_tiny_model_loads_and_has_the_real_tokenizer(tiny: tuple[Path, str]) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    directory, sha256 = tiny
    assert hash_base(directory) == sha256
    tokenizer = AutoTokenizer.from_pretrained(directory)
    text = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)
    assert "<|im_start|>user\nHi<|im_end|>" in text
    model = AutoModelForCausalLM.from_pretrained(directory)
    assert (model.config.num_hidden_layers, model.config.vocab_size) == (2, 49_152)
    texts = [path.read_text() for path in directory.glob("*config.json")]
    assert not any(str(Path.home()) in text for text in texts)


@pytest.mark.train
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("family", FAMILIES)
def test_first_hour_s03_every_family_comes_from_a_hub_and_learns(
    family: str, tmp_path: Path
) -> None:
    """Described, its tokenizer and template understood, and every layer of an adapter learns."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    copy = tmp_path / "copy"
    with serving(HubServer({"org/x": write_family(family, tmp_path / "origin")})) as server:
        hub = Hub(server.environ)
        hub.download(hub.model("org/x"), copy, lambda _: None)
    base = describe(family, copy, "mit")
    assert (base.hidden_size, base.layers, base.context_length) == (64, 2, 512)
    assert base.family == family.partition("_")[0].rstrip("0123456789")
    assert Tokenizer.load(copy).render is not None
    model = AutoModelForCausalLM.from_pretrained(copy)
    tuned = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear"))
    row = torch.tensor([[1, 2, 3, 4]])
    tuned(input_ids=row, labels=row).loss.backward()
    grads = [weight.grad for name, weight in tuned.named_parameters() if "lora_B" in name]
    assert len(grads) >= 2 * 4
    assert all(grad is not None and bool(grad.any()) for grad in grads)
