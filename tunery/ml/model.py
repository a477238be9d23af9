"""The model that a training trains: the base as its files have it, and what is added to it.

QLoRA keeps the linear layers of the base in four bits: NF4, blocks of 64 weights, whose scales are
quantised again. They are widened to the precision of the run for each product. The adapter has that
precision all the time, with a master copy in fp32 (`tunery.ml.state`).
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import torch
from peft import LoraConfig, get_peft_model
from transformers import BitsAndBytesConfig, set_seed

from tunery.ml.adapter_products import use_products
from tunery.ml.attention import use_document_attention
from tunery.ml.engines import loads_on_cpu
from tunery.ml.float8 import FLOAT8
from tunery.ml.kernels import kernels_of
from tunery.ml.language import (
    adaptable,
    experts,
    freeze_other_parts,
    load_language_model,
    named_layers,
)
from tunery.ml.rewards import HEAD, add_head
from tunery.ml.state import load_adapter
from tunery.plan.memory import FUSED_FAMILIES
from tunery.plan.methods import REWARD
from tunery.work.exits import WorkError
from tunery.work.spec import Hyper, StartingAdapter, TrainSpec

LoadBase: TypeAlias = Callable[..., Any]  # as `load_base`

# On processors with AVX512-BF16, bitsandbytes lays the weights of a layer out anew at the first
# pass without gradients, for a product that has no gradient and rounds otherwise. A training would
# be wrong after its first evaluation, and scores would depend on the processor.
_REORDERS: Final = "support_avx512bf16_for_cpu"


def load_base(
    folder: str, dtype: torch.dtype, torch_device: torch.device, *, four_bits: bool
) -> Any:
    """A base model on the device.

    four_bits: its linear layers are quantised while they are read, all but the one that gives the
        logits
    """
    # Without a wish transformers takes SDPA, and its own attention for families that have none
    # (Gemma 2, gpt-oss), which it refuses to load with one.
    is_fused = torch.cuda.is_available() and kernels_of(torch.device("cuda")).fused_layers
    if not four_bits:
        model = load_language_model(folder, dtype=dtype)
        if is_fused:  # also where layers wait in the machine's memory
            use_fused_kernels(model)
        return model.to(torch_device)
    quantisation = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )
    model = load_language_model(
        folder, dtype=dtype, quantization_config=quantisation, device_map={"": torch_device}
    )
    for layer in model.modules():
        if hasattr(layer, _REORDERS):
            setattr(layer, _REORDERS, False)
    if is_fused:
        use_fused_kernels(model)
    return model


def use_fused_kernels(model: Any) -> None:
    """Have Liger compute a model's norms, SwiGLU and rotations, where it has kernels for them.

    On an H200 a training of adapters took 1.14 to 1.17 times as many tokens a second with them, in
    0.82 of the memory, and two of them gave the same bytes. What scores a model has them as well.
    """
    config, family = model.config, model.config.model_type
    is_plain = family in FUSED_FAMILIES and not getattr(config, "mlp_bias", False)
    if is_plain and config.hidden_act == "silu":
        from liger_kernel import transformers as liger  # seconds of import

        apply = getattr(liger, f"apply_liger_kernel_to_{family}")
        apply(model=model, fused_linear_cross_entropy=False)  # the loss has its own head


def load_model(
    spec: TrainSpec,
    hyper: Hyper,
    precision: str,
    torch_device: torch.device,
    load: LoadBase = load_base,
) -> Any:
    """The base model with an adapter, on the device: that of `spec.start`, or a new one.

    Where every weight is trained, it has none, and is that of `spec.start` or the base itself.

    precision: "bf16", "fp32" or "fp8", whose weights are in bf16
    load: gives the base of an adapter
    Raises WorkError("user") for layers that the base model does not have, or a start of another
    form.

    For an engine that shards it, it is in the machine's memory.
    """
    dtype = torch.float32 if precision == "fp32" else torch.bfloat16
    begins_on = torch.device("cpu") if loads_on_cpu(spec.engine) else torch_device
    if hyper.adaptation == "full":
        return _load_whole(spec, dtype, torch_device, begins_on)
    four_bits = hyper.adaptation == "qlora"
    begins_on = torch_device if four_bits else begins_on  # the device makes the four bits
    base = load(spec.base_dir, dtype, begins_on, four_bits=four_bits)
    use_document_attention(base, torch_device)
    _check_named_layers(base, hyper)
    set_seed(hyper.seed)  # the adapter's first weights are random
    if hyper.method == REWARD:
        add_head(base)
    try:
        # Adapters in the base's type: mixed types cost a conversion in every layer.
        model = get_peft_model(base, lora_config(hyper, base), autocast_adapter_dtype=False)
    except ValueError as error:
        if "lora_dropout" in str(error):  # experts of a mixture, which are no linear layers
            message = f"the experts of {spec.base_id} take no dropout: {error}"
            advice = "Set lora.dropout to 0, or name other layers in lora.target_modules."
            raise WorkError("user", message, advice) from error
        targets = hyper.target_modules
        message = f"target_modules {targets!r} cannot be adapted in {spec.base_id}: {error}"
        advice = f"Use some of {', '.join(_linear_names(base))} in lora.target_modules."
        raise WorkError("user", message, advice) from error
    if four_bits:
        # TRL rounds adapters of quantised models to bf16 in place, also in a run in fp32.
        base.is_loaded_in_4bit = False
        set_adapter_type(model, dtype)
    if spec.start is not None:
        _begin_with(model, spec.start)
    # PEFT's own layers add up parts of a matrix, and add to what float8 products gave, a view.
    if spec.engine.tensor_parallel == 1 and precision != FLOAT8:
        use_products(model)
    return model.to(begins_on)


def _load_whole(
    spec: TrainSpec, dtype: torch.dtype, torch_device: torch.device, begins_on: torch.device
) -> Any:
    """A model whose every weight is trained. Raises WorkError("user") where some cannot be."""
    folder = spec.base_dir if spec.start is None else spec.start.dir
    model = load_base(folder, dtype, begins_on, four_bits=False)
    named = model.named_parameters()
    fixed = [name for name, weight in named if not weight.requires_grad]
    if fixed:
        message = f"weights of {spec.base_id} are quantised and cannot be trained, as {fixed[0]}"
        raise WorkError("user", message, 'Set training.adaptation to "lora" or "qlora".')
    freeze_other_parts(model)
    use_document_attention(model, torch_device)
    return model


def set_adapter_type(model: Any, dtype: torch.dtype) -> None:
    """Give an adapter the type of the run: PEFT makes those of quantised layers in fp32."""
    for name, weight in model.named_parameters():
        if ".lora_" in name or ".modules_to_save." in name:
            weight.data = weight.data.to(dtype)


def _begin_with(model: Any, start: StartingAdapter) -> None:
    """Give an adapter the weights of another. Raises WorkError("user") where they do not fit."""
    try:
        load_adapter(Path(start.dir), model)
    except RuntimeError as error:
        message = f"the weights of {start.name} are of another adapter than this one: {error}"
        advice = "Begin with the base model, or leave rank, alpha and layers as they are there."
        raise WorkError("user", message, advice) from error


def lora_config(hyper: Hyper, base: Any) -> LoraConfig:
    """PEFT's configuration of a job's adapter. Raises WorkError("user") for other parts' layers."""
    targets, weights = hyper.target_modules, []
    if isinstance(targets, str):
        paths = adaptable(base)
    else:
        of_experts = experts(base)
        weights = [path for name in targets for path in of_experts.get(name, ())]
        targets = tuple(name for name in targets if name not in of_experts)
        paths = named_layers(base, targets)
    if paths is not None:
        targets = tuple(paths)
    return LoraConfig(
        r=hyper.rank,
        lora_alpha=hyper.alpha,
        lora_dropout=hyper.dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
        target_parameters=weights or None,
        use_rslora=hyper.rslora,
        use_dora=hyper.dora,
        modules_to_save=_whole_layers(hyper) or None,
        rank_pattern=dict(hyper.rank_pattern),
        alpha_pattern=dict(hyper.alpha_pattern),
        task_type="CAUSAL_LM",
    )


def _whole_layers(hyper: Hyper) -> list[str]:
    """Names of the layers that are trained as a whole."""
    return sorted({*hyper.modules_to_save, *((HEAD,) if hyper.method == REWARD else ())})


def _check_named_layers(base: Any, hyper: Hyper) -> None:
    """Raises WorkError("user") for layers that are named and do not exist, or cannot be trained."""
    layers, of_experts = dict(base.named_modules()), experts(base)
    for knob in ("target_modules", "rank_pattern", "alpha_pattern", "modules_to_save"):
        named = getattr(hyper, knob)
        if isinstance(named, str):  # every linear layer
            continue
        for wanted in dict(named) if knob.endswith("_pattern") else named:
            if knob == "target_modules" and wanted in of_experts:
                continue
            meant = [layers[name] for name in layers if re.fullmatch(rf"(.*\.)?({wanted})", name)]
            if not meant:
                message = f"{knob} names {wanted!r}, which is not in this model"
                raise WorkError("user", message, f"Use some of {', '.join(_linear_names(base))}.")
            if knob == "modules_to_save" and any(map(_has_four_bits, meant)):
                message = f"{knob} names {wanted!r}, whose weights are in four bits with qlora"
                advice = 'Name others, such as lm_head, or set training.adaptation to "lora".'
                raise WorkError("user", message, advice)


def _has_four_bits(layer: Any) -> bool:
    return any(type(weight).__name__ == "Params4bit" for weight in layer.parameters())


def _linear_names(base: Any) -> list[str]:
    """Last parts of the names of the layers that an adapter can be added to."""
    linear = adaptable(base) or (
        name for name, layer in base.named_modules() if isinstance(layer, torch.nn.Linear)
    )
    return sorted({*(name.rpartition(".")[2] for name in linear), *experts(base)} - {"lm_head"})
