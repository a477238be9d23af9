"""The shape of a base model, as its configuration says it."""

import re
from typing import Any, Final

# `model_type` of those whose attention has no SDPA in transformers, and is computed pair by pair.
# Models without attention are among them; they have no heads. A test compares it.
WITHOUT_SDPA: Final = frozenset(
    {
        *("big_bird", "bigbird_pegasus", "bloom", "codegen", "cpmant", "deepseek_v4"),
        *("falcon_mamba", "flint", "gemma2", "git", "got_ocr2", "gpt_neo", "gpt_neox_japanese"),
        *("gpt_oss", "gptj", "granite_swa", "granitemoe_swa", "hy_v4", "inkling2_text", "mamba"),
        *("mamba2", "megatron-bert", "mimo_v2_flash", "mpt", "mvp", "openai-gpt", "prophetnet"),
        *("reformer", "rembert", "roformer", "rwkv", "trocr", "vaultgemma", "xglm", "xlm"),
        *("xlnet", "xlstm"),
    }
)


def shape_of(config: dict[str, Any]) -> dict[str, Any]:
    """Fields of a `Base` for the configuration of a language model; what it does not say is 0."""
    return {
        "family": _family(config),
        "layers": _number(config, "num_hidden_layers"),
        "inner_size": _inner_size(config),
        "vocabulary": _number(config, "vocab_size"),
        "eager_heads": _eager_heads(config),
    }


def _number(config: dict[str, Any], key: str) -> int:
    """0 where the configuration does not say it: the estimate of memory then goes by the size."""
    value = config.get(key)
    return value if isinstance(value, int) and value > 0 else 0


def _inner_size(config: dict[str, Any]) -> int:
    """The width inside of a layer for one token: of experts, of all those that it goes through.

    `shared_expert_intermediate_size` is Qwen's word for what DeepSeek's `n_shared_experts` counts.
    """
    inner = _number(config, "intermediate_size")
    routed = _number(config, "num_experts_per_tok")
    if not routed:
        return inner
    expert = _number(config, "moe_intermediate_size") or inner
    shared = _number(config, "shared_expert_intermediate_size")
    return (routed + _number(config, "n_shared_experts")) * expert + shared


def _eager_heads(config: dict[str, Any]) -> int:
    if config.get("model_type") not in WITHOUT_SDPA:
        return 0
    return _number(config, "num_attention_heads")


def _family(config: dict[str, Any]) -> str:
    """The letters that `model_type` begins with, such as "llama" or "qwen"; "unknown" without."""
    letters = re.match("[a-z]+", str(config.get("model_type", "")).lower())
    return letters[0] if letters else "unknown"
