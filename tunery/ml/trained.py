"""Results of a training: an adapter in PEFT's format, or a whole model in that of transformers.

A whole model is a directory of one file of weights, the configuration and the files of its
tokenizer: transformers loads it without its base. Weights that are tied are written once. An
adapter that was trained with a chat template of its own has these files beside it as well.
"""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from schemas.training import Adaptation
from tunery.ml import adapters
from tunery.platform.blobs.base_files import CONFIG, TOKENIZER_NAMES, WEIGHTS
from tunery.work.exits import WorkError

LOCAL_KEYS: Final = ("_name_or_path", "auto_map")  # of a configuration: paths, and code


def is_whole(model: Any) -> bool:
    """Return whether all weights are trained; a model with adapters has PEFT's configuration."""
    return not hasattr(model, "peft_config")


def weights_file(adaptation: Adaptation) -> str:
    """The file that has the trained weights."""
    return WEIGHTS if adaptation == "full" else adapters.WEIGHTS


def files_of(model: Any) -> tuple[str, str]:
    """Names of the files of weights and configuration."""
    return (WEIGHTS, CONFIG) if is_whole(model) else (adapters.WEIGHTS, adapters.CONFIG)


def trained_tensors(model: Any) -> dict[str, Tensor]:
    """The trained tensors, by the names that PEFT or transformers load them under."""
    if not is_whole(model):
        return adapters.adapter_tensors(model)
    from transformers.core_model_loading import revert_weight_conversion

    kept = set(model.state_dict())
    named = (*model.named_parameters(), *model.named_buffers())
    tensors = {name: tensor.detach() for name, tensor in named if name in kept}
    # experts of a mixture: one tensor in the model, one each in files
    return dict(revert_weight_conversion(model, tensors))


def check_finite(name: str, tensor: Tensor) -> None:
    """Raises WorkError("user") for weights that are not finite."""
    if not bool(torch.isfinite(tensor).all()):
        message = f"the weights {name!r} hold NaN or infinity"
        raise WorkError("user", message, "Train again with a lower learning rate.")


def configuration(model: Any, base_id: str) -> str:
    """The file of configuration as text: one spelling for one meaning."""
    if not is_whole(model):
        return adapters.canonical_config(adapters.adapter_config(model), base_id)
    content = json.loads(model.config.to_json_string())
    content |= {"architectures": [type(model).__name__]}
    for key in LOCAL_KEYS:
        content.pop(key, None)
    return f"{json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False)}\n"


def described(model: Any) -> str:
    if not is_whole(model):
        return adapters.adapted(model)
    return f"all {sum(weight.numel() for weight in model.parameters()):,} parameters are trained"


def write_trained(
    model: Any,
    tensors: Mapping[str, Tensor],
    base_id: str,
    base_dir: Path,
    dst: Path,
    tokenizer_dir: Path | None = None,
) -> adapters.Canonical:
    """Write what was trained to `dst` in canonical form.

    tensors: `trained_tensors` of the model, at whatever step
    tokenizer_dir: its own tokenizer; None: the base model's

    Raises WorkError("user") for tensors that are not finite.
    """
    named = [(tokenizer_dir or base_dir) / name for name in TOKENIZER_NAMES]
    beside = [path for path in named if path.is_file()]
    if not is_whole(model):
        config = adapters.adapter_config(model)
        beside = [] if tokenizer_dir is None else beside
        return adapters.write_canonical(dict(tensors), config, dst, base_id, beside)
    for name, tensor in tensors.items():
        check_finite(name, tensor)
    write = partial(adapters.save_tensors, tensors)
    return adapters.write_files(write, configuration(model, base_id), files_of(model), dst, beside)
