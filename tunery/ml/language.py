"""Language models of any family, also inside multi-modal models.

A base may be a wrapper: an image tower, a projector, and a language model beneath it. Jobs learn
from text, so that no picture ever passes: adapters, and training of every weight, stay with the
language model. The wrapper is loaded as a whole, and a published model is one again.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    GenerationConfig,
)

from tunery.ml.adapters import EXPERT_DIMENSIONS, EXPERTS
from tunery.work.exits import WorkError
from tunery.work.spec import ScoreSpec, TrainSpec

# A mixer of Mamba has both, a linear attention the first alone. Its kernels read the weights of
# `out_proj` and `conv1d` past the layers, so that PEFT refuses adapters there for some families,
# and they would learn nothing in others.
OF_MIXERS: Final = frozenset({"A_log", "D"})
READ_BY_KERNELS: Final = frozenset({"out_proj", "conv1d"})


def load_language_model(folder: Any, **options: Any) -> Any:
    """Load a base as transformers writes text with it, without code of its own.

    options: of `from_pretrained`

    Raises WorkError("user") for a base that does not write text; as `from_pretrained` otherwise.
    """
    auto = auto_class(AutoConfig.from_pretrained(folder, trust_remote_code=False))
    return auto.from_pretrained(folder, trust_remote_code=False, **options)


def load_tokenizer(spec: TrainSpec | ScoreSpec, *models: Any) -> Any:
    """Load the tokenizer of a spec; where it is not the base model's, it says what ends answers.

    models: their answers then end at its end tokens
    """
    if spec.tokenizer_dir is None:
        return AutoTokenizer.from_pretrained(spec.base_dir)
    if (Path(spec.tokenizer_dir) / "generation_config.json").is_file():
        ends = GenerationConfig.from_pretrained(spec.tokenizer_dir).eos_token_id
        for model in models if ends is not None else ():
            model.generation_config.eos_token_id = ends
    return AutoTokenizer.from_pretrained(spec.tokenizer_dir)


def auto_class(config: Any) -> Any:
    """The class of transformers that makes a model of a configuration which writes text.

    Raises WorkError("user") where there is none.
    """
    for auto in (AutoModelForCausalLM, AutoModelForImageTextToText):
        if type(config) in auto._model_mapping:
            return auto
    message = f"{config.model_type} has no language model that transformers writes text with"
    raise WorkError("user", message, "Take the version of it that writes text.")


def is_wrapper(model: Any) -> bool:
    """Return whether a language model is one part of a model among others."""
    return model.config.get_text_config() is not model.config


def is_of_language(model: Any, name: str) -> bool:
    """Return whether a module or weight of a model is part of its language model.

    name: its path in the model
    """
    if not is_wrapper(model):
        return True
    parts = {id(each) for each in (model.get_decoder(), model.get_output_embeddings())}
    return any(
        id(module) in parts and f"{name}.".startswith(f"{path}.")
        for path, module in model.named_modules()
        if path
    )


def freeze_other_parts(model: Any) -> None:
    """Freeze all parts other than the language model, for a training of every weight."""
    for name, weight in model.named_parameters():
        if not is_of_language(model, name):
            weight.requires_grad_(False)


def adaptable(model: Any) -> list[str] | None:
    """Paths of the linear layers that an adapter is of use in; None: all but the output layer."""
    left_out = {*_read_by_kernels(model), *_routers(model)}
    if not is_wrapper(model) and not left_out:
        return None
    head = model.get_output_embeddings()
    return [
        path
        for path, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
        and module is not head
        and path not in left_out
        and is_of_language(model, path)
    ]


def named_layers(model: Any, names: tuple[str, ...]) -> list[str] | None:
    """Paths of the layers with these names in the language model; None: the names will do.

    Raises WorkError("user") where some are in other parts of the model alone.
    """
    if not is_wrapper(model):
        return None
    paths = [path for path, _ in model.named_modules() if path]
    meant = [(name, path) for name in names for path in paths if f".{path}".endswith(f".{name}")]
    inside = [(name, path) for name, path in meant if is_of_language(model, path)]
    if strays := {name for name, _ in meant} - {name for name, _ in inside}:
        message = (
            f"target_modules {', '.join(sorted(strays))} are no part of the language model of "
            f"{model.config.model_type}: no picture passes through a training, so that they would "
            "learn nothing"
        )
        raise WorkError("user", message, "Name layers of the language model.")
    return [path for _, path in inside] if inside else None


def experts(model: Any) -> dict[str, list[str]]:
    """Paths of the weights of all experts of a layer in the language model, by their last names.

    A name is that of the weight after that of its module, "experts.down_proj" for example.
    """
    paths: dict[str, list[str]] = {}
    for path, weight in model.named_parameters():
        module, _, name = path.rpartition(".")
        is_of_experts = module.endswith(f".{EXPERTS}") and weight.dim() == EXPERT_DIMENSIONS
        if is_of_experts and is_of_language(model, path):
            paths.setdefault(f"{EXPERTS}.{name}", []).append(path)
    return paths


def _routers(model: Any) -> Iterator[str]:
    """Paths of linear layers of a family's own class, which give more than a product."""
    for path, module in model.named_modules():
        is_own = type(module).__module__.startswith("transformers.models.")
        if is_own and isinstance(module, torch.nn.Linear):
            yield path


def _read_by_kernels(model: Any) -> Iterator[str]:
    """Paths of layers whose weights kernels of Mamba read, not the layers."""
    for path, module in model.named_modules():
        if {name for name, _ in module.named_parameters(recurse=False)} >= OF_MIXERS:
            yield from (f"{path}.{name}" for name in READ_BY_KERNELS)
