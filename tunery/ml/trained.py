"""What a training leaves: an adapter in PEFT's form, or a whole model in that of transformers.

A whole model is a directory of one file of weights, the configuration and the base's own files of
its tokenizer: transformers loads it without its base. Weights that are tied are written once.
"""

import json
from collections.abc import Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from schemas.training import Adaptation
from tunery.ml import adapters
from tunery.ml.sharding import ShardedLayers
from tunery.ml.tensor_files import METADATA, TensorFile
from tunery.runtime.blobs.base_files import CONFIG, INDEX, NAMES, WEIGHTS
from tunery.work.exits import WorkError

LOCAL_KEYS: Final = ("_name_or_path", "auto_map")  # of a configuration: paths, and code


def is_whole(model: Any) -> bool:
    """Whether every weight of a model is trained: PEFT gives models a configuration of adapters."""
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


def of_each_rank(model: Any, sharded: ShardedLayers | None) -> dict[str, Tensor]:
    """The trained tensors that all ranks have: of sharded layers none."""
    if sharded is None:
        return trained_tensors(model)
    return {name: model.get_parameter(name).detach() for name in sharded.beside}


def write_sharded(
    model: Any, layers: ShardedLayers, path: Path, *, must_be_finite: bool = False
) -> None:
    """Write the weights of a whole model layer by layer, as `save_file` writes all of them.

    The other ranks pass all layers meanwhile. Raises OSError, RankLost, WorkError("user") for
    tensors that are not finite where they must be.
    """
    from transformers.core_model_loading import revert_weight_conversion

    kept = set(model.state_dict())
    named = {
        name: tensor.detach()
        for name, tensor in (*model.named_parameters(), *model.named_buffers())
        if name in kept
    }
    of_layers = {name for name, _ in model.named_parameters()} - set(layers.beside)
    beside = {name: tensor for name, tensor in named.items() if name not in of_layers}
    empty = {name: tensor.to("meta") for name, tensor in named.items()}
    shapes = {name: each.shape for name, each in revert_weight_conversion(model, empty).items()}
    parts = chain([beside], map(layers.weights_of, layers.passing()))
    with TensorFile(path, shapes, model.dtype, METADATA) as file:
        for part in parts:
            for name, tensor in revert_weight_conversion(model, part).items():
                if must_be_finite:
                    check_finite(name, tensor)
                file.write(name, tensor)


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
    """What is trained of a model, in words."""
    if not is_whole(model):
        return adapters.adapted(model)
    return f"all {sum(weight.numel() for weight in model.parameters()):,} parameters are trained"


def write_trained(
    model: Any,
    best: Mapping[str, Tensor],
    base_id: str,
    base_dir: Path,
    dst: Path,
    sharded: ShardedLayers | None = None,
) -> adapters.Canonical:
    """Write what was trained to `dst` in canonical form.

    best: tensors that are written in place of the model's; empty: there are none
    sharded: its layers, which the other ranks pass meanwhile; None: it has all of them

    Raises WorkError("user") for tensors that are not finite, RankLost.
    """
    if not is_whole(model):
        tensors = dict(best) or trained_tensors(model)
        return adapters.write_canonical(tensors, adapters.adapter_config(model), dst, base_id)
    if sharded is None:
        tensors = dict(best) or trained_tensors(model)
        for name, tensor in tensors.items():
            check_finite(name, tensor)
        write = partial(adapters.save_tensors, tensors)
    else:
        write = partial(write_sharded, model, sharded, must_be_finite=True)
    kept = [base_dir / name for name in NAMES if name not in (CONFIG, INDEX)]
    beside = [path for path in kept if path.is_file()]
    text = configuration(model, base_id)
    return adapters.write_files(write, text, files_of(model), dst, beside)
