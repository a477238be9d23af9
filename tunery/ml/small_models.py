"""Small random models with the family and the settings of a base.

A configuration is made small by the names that families share for sizes: narrow, and two layers, of
different kinds where it has several. Other settings stay as they are. A family that is small in no
such way is named.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
import transformers

SEED: Final = 7
# Random matrices are so small that documents of a row which see each other hardly change losses:
# Falcon-H1 by 4e-5 nats a token, and by 5e-3 where they are five times as large.
SMALL_SCALE: Final = 5.0
LAYERS: Final = 2
WIDTH: Final = 64
HEADS: Final = 4
# Fields of configurations by what they count. A family has some of them.
SIZES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embedding_size"), WIDTH),
    **dict.fromkeys(("word_embed_proj_dim", "model_dim", "lru_width", "rnn_hidden_size"), WIDTH),
    **dict.fromkeys(("embed_dim", "hidden_dim", "text_hidden_size", "mm_hidden_size"), WIDTH),
    **dict.fromkeys(("out_hidden_size", "projection_dim", "attention_hidden_size"), WIDTH),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"), 2 * WIDTH),
    **dict.fromkeys(("mlp_dim", "dim_feedforward", "mlp_hidden_size", "block_ff_dim"), 2 * WIDTH),
    **dict.fromkeys(("intermediate_size_mlp", "dense_intermediate_size"), 2 * WIDTH),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("shared_intermediate_size", "moe_shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), LAYERS),
    **dict.fromkeys(("depth", "decoder_layers", "encoder_layers"), LAYERS),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), HEADS),
    **dict.fromkeys(("decoder_attention_heads", "encoder_attention_heads"), HEADS),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "multi_query_group_num"), 2),
    **dict.fromkeys(("swa_num_key_value_heads", "num_global_key_value_heads"), 2),
    **dict.fromkeys(("head_dim", "kv_channels", "attention_head_dim", "global_head_dim"), 16),
    **dict.fromkeys(("v_head_dim", "qk_nope_head_dim", "linear_key_head_dim"), 16),
    **dict.fromkeys(("linear_value_head_dim", "index_head_dim", "mamba_head_dim"), 16),
    **dict.fromkeys(("swa_head_dim", "key_head_dim", "value_head_dim"), 16),
    **dict.fromkeys(("qk_rope_head_dim", "rotary_dim"), 8),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads", "index_n_heads"), 2),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 32),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("moe_num_experts", "ffn_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_topk"), 2),
    **dict.fromkeys(("moe_top_k", "top_k_experts", "experts_top_k"), 2),
    **dict.fromkeys(("n_group", "topk_group", "n_shared_experts"), 1),
    **dict.fromkeys(("first_k_dense_replace", "num_dense_layers"), 1),
    **dict.fromkeys(("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers"), 0),
    **dict.fromkeys(("state_size", "ssm_state_size", "mamba_d_state", "mamba_dt_rank"), 16),
    **dict.fromkeys(("mamba_n_heads", "mamba_num_heads"), 8),
    **dict.fromkeys(("mamba_d_head", "mamba_chunk_size", "chunk_size"), 16),
    **dict.fromkeys(("mamba_n_groups", "n_groups"), 2),
    **dict.fromkeys(("mamba_d_ssm",), 2 * WIDTH),
    "time_step_rank": 8,
    "max_position_embeddings": 2048,
    "n_positions": 2048,
    "sliding_window": 64,
    "image_size": 32,
    "patch_size": 8,
    "vision_feature_layer": -1,
}
# What is tried beside the sizes where a configuration does not accept them.
VARIANTS: Final[tuple[Mapping[str, Any], ...]] = (
    {},
    {"head_dim": 16},
    {"num_key_value_heads": HEADS},
    {"layer_types": "left out"},
    {"layers_block_type": "left out"},
    {"num_heads": 8, "head_dim": 16, "n_groups": 2},
    {"attention_hidden_size": 2 * WIDTH},
    {"num_experts_per_tok": 2},
)
# Settings of a configuration that a model of other sizes does not take over.
OF_FILES: Final = frozenset({"dtype", "torch_dtype", "model_type", "transformers_version"})


class NotSmall(Exception):
    """A family whose configuration these rules do not make small."""


def sizes_of(config: Any, vocabulary: int) -> dict[str, Any]:
    """Fields of a small configuration of the same class."""
    own = config.to_dict()  # an attribute may be another one's, or one of each layer
    values: dict[str, Any] = {name: SIZES[name] for name in SIZES if type(own.get(name)) is int}
    if hasattr(config, "vocab_size"):
        values["vocab_size"] = vocabulary
    for name in ("layer_types", "layers_block_type"):
        kinds = [*dict.fromkeys(own.get(name) or ())][-LAYERS:]
        if kinds:
            values[name] = [*kinds, *kinds[-1:] * (LAYERS - len(kinds))]
    for name in config.sub_configs:
        part = getattr(config, name, None)
        if isinstance(part, transformers.PretrainedConfig):
            values[name] = {"model_type": part.model_type} | sizes_of(part, vocabulary)
    return values


def switches_of(config: Any) -> dict[str, Any]:
    """Return what a configuration switches on and off: biases, tied tables, activations."""
    usual = type(config)().to_dict()
    own = config.to_dict()
    return {
        name: own[name]
        for name in own.keys() & usual.keys() - OF_FILES
        if isinstance(own[name], bool | str) and own[name] != usual[name]
    }


def small_model(
    config: Any,
    tokenizer: Any,
    make: Callable[[Any], Any],
    *,
    parameters_max: int,
    **changes: Any,
) -> Any:
    """A random model like the one of a configuration, with the tokens of a tokenizer.

    make: makes a model of a configuration
    changes: fields of the small configuration

    Raises `NotSmall`, with the reason of transformers.
    """
    failed = None
    for kept in (switches_of(config), {}):
        for further in VARIANTS:
            try:
                changed = {**kept, **sizes_of(config, len(tokenizer)), **further, **changes}
                return _model(config, tokenizer, make, parameters_max, changed)
            except NotSmall:
                raise
            except Exception as error:  # of whatever a configuration thinks of other sizes
                failed = failed or error
    message = f"{config.model_type}: {type(failed).__name__} {str(failed)[:200]}"
    raise NotSmall(message) from failed


def scale_matrices(model: Any, scale: float) -> None:
    """Multiply all matrices of a model."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(scale)


def _model(
    config: Any,
    tokenizer: Any,
    make: Callable[[Any], Any],
    parameters_max: int,
    values: dict[str, Any],
) -> Any:
    ids = ("bos_token_id", "eos_token_id", "pad_token_id")
    values |= {name: getattr(tokenizer, name) for name in ids}
    if "qk_rope_head_dim" in values:  # DeepSeek's names for one number
        values["head_dim"] = values["qk_rope_head_dim"]
    if "kv_lora_rank" in values:  # each head has its own keys
        values["num_key_value_heads"] = HEADS
    small = type(config)(**{name: values[name] for name in values if values[name] != "left out"})
    with torch.device("meta"):
        count = sum(each.numel() for each in make(small).parameters())
    if count > parameters_max:
        raise NotSmall(f"{config.model_type}: {count:,} parameters")
    torch.manual_seed(SEED)
    model = make(small)
    with torch.no_grad():  # some sizes do not fit each other, and only a row shows it
        model(input_ids=torch.arange(4)[None], use_cache=False)
    return model
