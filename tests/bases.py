"""A base model for tests: two random layers with the real tokenizer and template."""

import fcntl
import json
import subprocess
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from tunery.local.paths import cache_dir
from tunery.ml import base
from tunery.platform.blobs.base_files import hash_base

BUILD_S_MAX: Final = 240


class Base(NamedTuple):
    dir: Path
    sha256: str


@cache
def tiny_base() -> Base:
    """Made once for each version of the code that makes it, kept with the other downloads."""
    version = sha256(Path(base.__file__).read_bytes()).hexdigest()[:12]
    folder = cache_dir() / "tests" / f"tiny-{version}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tunery.ml.base", "tiny", str(folder)]
    with (folder.parent / "tiny.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process makes it, those beside it wait
        completed = subprocess.run(command, capture_output=True, check=True, timeout=BUILD_S_MAX)
    return Base(folder, json.loads(completed.stdout)["sha256"])


def wide_heads(folder: Path) -> Base:
    """The tiny base model with heads of 32, the fewest that vLLM computes on a CPU."""
    import torch
    import transformers

    tiny = tiny_base().dir
    config = transformers.AutoConfig.from_pretrained(
        tiny, num_attention_heads=2, num_key_value_heads=1, head_dim=32
    )
    torch.manual_seed(7)
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(
        folder
    )
    transformers.AutoTokenizer.from_pretrained(tiny).save_pretrained(folder)
    return Base(folder, hash_base(folder))


# one random model of each family: its configuration class, its model class, what they need beside
ROPE: Final = {"rope_type": "default", "rope_theta": 10_000.0}
FAMILIES: Final[dict[str, tuple[str, str, dict[str, object]]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", {}),
    "smollm3": ("SmolLM3Config", "SmolLM3ForCausalLM", {}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {"head_dim": 16}),
    "mistral": ("MistralConfig", "MistralForCausalLM", {"head_dim": 16}),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM", {"head_dim": 16}),
    "phi3": ("Phi3Config", "Phi3ForCausalLM", {}),
    "gpt_oss": (
        "GptOssConfig",
        "GptOssForCausalLM",
        {"head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "rope_parameters": ROPE},
    ),
}


def write_family(family: str, folder: Path) -> Path:
    """A tiny random model of a family with the tokenizer and template of the tiny base."""
    import torch
    import transformers

    config_class, model_class, more = FAMILIES[family]
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_base().dir)
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id")}
    config = getattr(transformers, config_class)(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        pad_token_id=tokenizer.pad_token_id,
        **ids,
        **more,
    )
    torch.manual_seed(7)
    model = getattr(transformers, model_class)(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
