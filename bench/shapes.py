"""A base model with the shape of a known one and random weights: nothing has to be downloaded.

    .venv/bin/python -m bench.shapes llama_1b FOLDER

Speed and memory depend on the shape alone. The tokenizer is that of the bundled model, or the one
of the folder that `--tokenizer` names, so the vocabulary is smaller than the known model's.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tunery.local.paths import cache_dir
from tunery.ml.base import MODEL_ID, convert

LLAMA: Final = {
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
# Of each: transformers' class of the configuration, and what it is given. `gpt_oss_6l` has six of
# the 24 layers of gpt-oss-20b, each with its 32 experts: 5.6 instead of 21 billion parameters.
SHAPES: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "llama_1b": (
        "LlamaConfig",
        LLAMA
        | {
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
        },
    ),
    "llama_8b": (
        "LlamaConfig",
        LLAMA
        | {
            "hidden_size": 4096,
            "intermediate_size": 14_336,
            "num_hidden_layers": 32,
        },
    ),
    "gpt_oss_6l": (
        "GptOssConfig",
        {
            "num_hidden_layers": 6,
            "max_position_embeddings": 4096,
            "rope_parameters": {"rope_type": "default", "rope_theta": 150_000.0},
        },
    ),
}


def bundled_base() -> Path:
    """The folder of the bundled model, which is made where it is not there yet."""
    folder = cache_dir() / "bases" / MODEL_ID
    convert(folder)
    return folder


def write_base(shape: str, folder: Path, tokenizer: Path | None = None) -> Path:
    """Write the model in bf16, on the accelerator where there is one, which takes seconds."""
    import torch
    import transformers

    words = transformers.AutoTokenizer.from_pretrained(tokenizer or bundled_base())
    config_class, values = SHAPES[shape]
    ids = {name: getattr(words, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    config = getattr(transformers, config_class)(vocab_size=len(words), **values, **ids)
    torch.manual_seed(7)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def main() -> None:
    """Write one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokenizer", type=Path, help="a model's folder; else the bundled model")
    arguments = parser.parse_args()
    print(write_base(arguments.shape, arguments.folder, arguments.tokenizer))


if __name__ == "__main__":
    main()
