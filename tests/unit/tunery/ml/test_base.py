from pathlib import Path

import pytest

from tunery.ml.base import gguf_file, main
from tunery.runtime.blobs.base_files import hash_base


def test_the_wheel_has_the_weights() -> None:
    assert gguf_file().stat().st_size > 50_000_000


def test_an_unknown_word_shows_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["melt", "x"]) == 64
    assert "convert | tiny" in capsys.readouterr().err


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
