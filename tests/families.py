"""Tiny random models of any family that the installed transformers knows.

A family's own default configuration, made small as the proof of a base makes it. A family that is
small in no such way is left out by name.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

PARAMETERS_MAX: Final = 30_000_000


@cache
def known() -> Mapping[str, str]:
    """Class of the model of each family that writes text, by the type of its configuration."""
    from transformers.models.auto import modeling_auto as auto

    wrappers = auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    return {**auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, **wrappers}


def tiny_model(family: str, tokenizer: Any, **changes: Any) -> Any:
    """A random model of a family in bf16. Raises `NotSmall`."""
    import torch
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    from tunery.ml.small_models import small_model

    make = getattr(transformers, known()[family])
    config = CONFIG_MAPPING[family]()
    model = small_model(config, tokenizer, make, parameters_max=PARAMETERS_MAX, **changes)
    return model.to(torch.bfloat16)


def write_tiny(family: str, folder: Path, *, scale: float = 1.0, **changes: Any) -> Path:
    """Write a random model of a family with the tokenizer and template of the tiny base.

    scale: factor of its matrices
    """
    import transformers

    from tests.bases import tiny_base
    from tunery.ml.small_models import scale_matrices

    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_base().dir)
    model = tiny_model(family, tokenizer, **changes)
    scale_matrices(model, scale)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
