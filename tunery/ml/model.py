"""The model that a training trains: the base as its files have it, and what is added to it."""

import re
from collections.abc import Mapping
from typing import Any, Final

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, set_seed

from tunery.work.exits import WorkError
from tunery.work.spec import ALL_LINEAR, Hyper, Precision, TrainSpec

DTYPE_NAMES: Final[Mapping[torch.dtype, Precision]] = {
    torch.bfloat16: "bf16",
    torch.float32: "fp32",
}


def load_model(spec: TrainSpec, hyper: Hyper, precision: str, torch_device: torch.device) -> Any:
    """The base model with an adapter that has learnt nothing, on the device.

    precision: a value of `DTYPE_NAMES`
    Raises WorkError("user") for layers that the base model does not have.
    """
    dtype = next(dtype for dtype, name in DTYPE_NAMES.items() if name == precision)
    base = AutoModelForCausalLM.from_pretrained(
        spec.base_dir, dtype=dtype, attn_implementation="sdpa"
    )
    _check_named_layers(base, hyper)
    set_seed(hyper.seed)  # the adapter's first weights are random
    targets = hyper.target_modules
    config = LoraConfig(
        r=hyper.rank,
        lora_alpha=hyper.alpha,
        lora_dropout=hyper.dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
        use_rslora=hyper.rslora,
        use_dora=hyper.dora,
        modules_to_save=list(hyper.modules_to_save) or None,
        rank_pattern=dict(hyper.rank_pattern),
        alpha_pattern=dict(hyper.alpha_pattern),
        task_type="CAUSAL_LM",
    )
    try:
        # Adapters in the base's type: mixed types cost a conversion in every layer.
        model = get_peft_model(base, config, autocast_adapter_dtype=False)
    except ValueError as error:
        if "lora_dropout" in str(error):  # experts of a mixture, which are no linear layers
            message = f"the experts of {spec.base_id} take no dropout: {error}"
            advice = "Set lora.dropout to 0, or name other layers in lora.target_modules."
            raise WorkError("user", message, advice) from error
        message = f"target_modules {hyper.target_modules!r} are not in this model"
        advice = f'Use "{ALL_LINEAR}", or some of {", ".join(_linear_names(base))}.'
        raise WorkError("user", message, advice) from error
    return model.to(torch_device)


def _check_named_layers(base: Any, hyper: Hyper) -> None:
    """Raises WorkError("user") for layers that are named and do not exist."""
    layers = [name for name, _ in base.named_modules()]
    for knob in ("rank_pattern", "alpha_pattern", "modules_to_save"):
        named = getattr(hyper, knob)
        for wanted in named if knob == "modules_to_save" else dict(named):
            if not any(re.fullmatch(rf"(.*\.)?({wanted})", layer) for layer in layers):
                message = f"{knob} names {wanted!r}, which is not in this model"
                raise WorkError("user", message, f"Use some of {', '.join(_linear_names(base))}.")


def _linear_names(base: Any) -> list[str]:
    """Last parts of the names of the layers that an adapter can be added to."""
    linear = (name for name, layer in base.named_modules() if isinstance(layer, torch.nn.Linear))
    return sorted({name.rpartition(".")[2] for name in linear} - {"lm_head"})
