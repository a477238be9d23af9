"""Adapters that were trained elsewhere: what is taken of them, and what is refused by its name."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from tunery.work.artifact import (
    CONFIG,
    CONFIG_BYTES_MAX,
    PREFIX_BYTES,
    WEIGHTS,
    Unpublishable,
    read_tensors,
)

ZIP: Final = b"PK\x03\x04"  # how torch saves pickles
PICKLE: Final = b"\x80"  # a pickle of protocol 2 to 5
NAME: Final = re.compile(r"[A-Za-z0-9_.]{1,128}")  # PEFT reads some names as patterns
ALL_LINEAR: Final = "all-linear"
ADAPTED: Final = "base_model.model."  # what PEFT's names of weights begin with
HEAD: Final = "lm_head.weight"  # may be the same as the one below
EMBEDDING: Final = "model.embed_tokens.weight"
MATRIX: Final = 2  # dimensions
#: fields of `adapter_config.json` with the one value that is taken
FIXED: Final[Mapping[str, Any]] = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "bias": "none",
    "fan_in_fan_out": False,
    "inference_mode": True,
    "init_lora_weights": True,
    "auto_mapping": None,
    "revision": None,
}
KEPT: Final = frozenset(
    (
        *("r", "lora_alpha", "lora_dropout", "use_rslora", "use_dora", "rank_pattern"),
        *("alpha_pattern", "target_modules", "modules_to_save"),
    )
)
PATTERNS: Final = ("rank_pattern", "alpha_pattern")
NAMING: Final = (*PATTERNS, "target_modules", "modules_to_save")
#: fields without meaning for weights that are trained
UNUSED: Final = frozenset(
    (
        *("base_model_name_or_path", "peft_version", "megatron_core", "qalora_group_size"),
        *("runtime_config", "auto_mapping", "revision", "inference_mode"),
    )
)
#: first values after which the base model is as it was
PLAIN_STARTS: Final = (None, True, False, "gaussian", "orthogonal")
EMPTY: Final[tuple[Any, ...]] = (None, False, {}, [])


def canonical_settings(data: bytes, base_id: str) -> tuple[bytes, dict[str, Any]]:
    """The settings of a foreign adapter in canonical form, as bytes and as values.

    They name the base model by its id here; paths and names of code are left out. Raises
    Unpublishable for what is no LoRA adapter of a causal model, and for each setting that would
    compute otherwise than LoRA, DoRA and rsLoRA do.
    """
    if len(data) > CONFIG_BYTES_MAX:
        raise Unpublishable(f"{CONFIG} has more than {CONFIG_BYTES_MAX} bytes")
    try:
        settings = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Unpublishable(f"{CONFIG} is not JSON: {error}") from error
    if not isinstance(settings, dict):
        raise Unpublishable(f"{CONFIG} must be a JSON object")
    if settings.get("peft_type") != "LORA":
        raise Unpublishable(f"{CONFIG}: peft_type must be LORA; other adapters are not taken")
    for name, value in settings.items():
        _check_setting(name, value)
    kept = {name: _sorted(value) for name, value in settings.items() if name in KEPT}
    canonical = {**FIXED, **kept, "base_model_name_or_path": base_id}
    text = json.dumps(canonical, indent=2, sort_keys=True, ensure_ascii=False)
    return f"{text}\n".encode(), canonical


def _check_setting(name: str, value: Any) -> None:
    problem = None
    if name in FIXED and name not in UNUSED:
        plain = PLAIN_STARTS if name == "init_lora_weights" else (None, FIXED[name])
        problem = None if value in plain else f"{value!r} is not taken: {_usual(name)}"
    elif name in NAMING:
        listed = [*value] if isinstance(value, dict) and name in PATTERNS else value
        if value not in (None, ALL_LINEAR) and not _are_names(listed):
            problem = "must name layers; patterns are not taken"
    elif name not in KEPT and name not in UNUSED and value not in EMPTY:
        problem = "is not taken; train without it"
    if problem is not None:
        raise Unpublishable(f"{CONFIG}: {name} {problem}")


def _usual(name: str) -> str:
    if name == "init_lora_weights":
        return "it changes the base model, which the weights alone do not say"
    return f"it must be {FIXED[name]!r}"


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(name, str) and NAME.fullmatch(name) for name in value
    )


def _sorted(value: Any) -> Any:
    return sorted({*value}) if isinstance(value, list) else value


def refuse_pickle(head: bytes) -> None:
    """Raise Unpublishable for pickled weights, whatever their file is called: to load them can run
    code. head: the first bytes of the file.
    """
    pickled = head.startswith(PICKLE) and head[PREFIX_BYTES : PREFIX_BYTES + 1] != b"{"
    if head.startswith(ZIP) or pickled:
        text = f"{WEIGHTS} holds a pickle, which can run code; save the adapter as safetensors"
        raise Unpublishable(text)


def check_layers(header: bytes, base_id: str, layers: Mapping[str, tuple[int, ...]]) -> None:
    """Raise Unpublishable unless each weight fits a layer of the base model.

    header: header of the adapter's weights. layers: shapes of the base model's weights, by name.
    """
    for name, tensor in read_tensors(header).items():
        if not name.startswith(ADAPTED):
            raise Unpublishable(f"{WEIGHTS}: {name} does not begin with {ADAPTED}, as PEFT's do")
        module, _, side = name.removeprefix(ADAPTED).partition(".lora_")
        if side not in ("A.weight", "B.weight"):
            continue
        layer = f"{module}.weight"
        shape = layers.get(layer) or (layers.get(EMBEDDING) if layer == HEAD else None)
        if shape is None:
            raise Unpublishable(f"{WEIGHTS}: {base_id} has no layer {module}")
        at = 1 if side == "A.weight" else 0
        width = tensor["shape"][at]
        if len(shape) == MATRIX and width != shape[at]:
            text = f"{name} has width {width}, and {module} of {base_id} has {shape[at]}"
            raise Unpublishable(f"{WEIGHTS}: {text}")
