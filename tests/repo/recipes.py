"""The JSON Schema of recipes, made from their fields: `python -m tests.repo.recipes`."""

import json
from pathlib import Path
from typing import Any, Final

from schemas.units import PPM
from services.gateway.jobs.domain.mixtures import (
    MIXTURE_FILES_MAX,
    WEIGHT,
    WEIGHT_MAX,
    WEIGHT_MIN_PPM,
)
from services.gateway.jobs.domain.own_chats import TEMPLATE_BYTES_MAX
from services.gateway.jobs.domain.requested import (
    BENCHMARKS_MAX,
    PROMPT_CHARACTERS_MAX,
    PROMPTS_MAX,
    SETTINGS,
)
from services.gateway.jobs.recipes import GROUP_FIELDS, OF_REQUESTS, Recipe
from tunery.measures.declaration import MEASURES_MAX, NAMES
from tunery.plan.knobs import KNOBS, LAYER, LAYERS_MAX, Knob
from tunery.work.own_chat import EOT_TOKENS_MAX
from tunery.work.spec import ALL_LINEAR

FILE: Final = Path(__file__).resolve().parents[2] / "dist" / "recipe.schema.json"
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
#: settings of the groups that are no hyper-parameters
OTHERS: Final[dict[str, Any]] = {
    "prompts": {
        "type": "array",
        "items": {"type": "string", "minLength": 1, "maxLength": PROMPT_CHARACTERS_MAX},
        "minItems": 1,
        "maxItems": PROMPTS_MAX,
    },
    "measures": {
        "type": "array",
        "items": {"anyOf": [{"enum": list(NAMES)}, {"type": "object", "required": ["type"]}]},
        "minItems": 1,
        "maxItems": MEASURES_MAX,
    },
    "chat_template": {
        "description": "text of a Jinja template, in place of the base model's",
        "type": ["string", "null"],
        "minLength": 1,
        "maxLength": TEMPLATE_BYTES_MAX,
    },
    "eot_tokens": {
        "description": "special tokens that end a turn, besides those of the base model",
        "type": ["array", "null"],
        "items": {"type": "string", "minLength": 1},
        "maxItems": EOT_TOKENS_MAX,
    },
    "benchmarks": {
        "type": "array",
        "items": {"type": "string"},
        "maxItems": BENCHMARKS_MAX,
    },
    "mixture": {
        "description": "further files, with how often an epoch sees each of their rows",
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "file": {"type": "string", "minLength": 1},
                "weight": {
                    "type": "number",
                    "minimum": WEIGHT_MIN_PPM / PPM,
                    "maximum": WEIGHT_MAX,
                    "default": WEIGHT,
                },
            },
            "required": ["file"],
            "additionalProperties": False,
        },
        "minItems": 1,
        "maxItems": MIXTURE_FILES_MAX,
    },
}


def document() -> str:
    whole = Recipe.model_json_schema()
    properties = {
        name: value for name, value in whole["properties"].items() if name not in OF_REQUESTS
    }
    for group in ("training", "lora", "eval"):
        properties[group] = _group(group)
    details = whole["$defs"]["MethodDetails"]["properties"]
    details["hyperparameters"] = _group("method.supervised.hyperparameters")
    schema = {
        "$schema": DIALECT,
        **whole,
        "required": ["version", *whole["required"][:2]],
        "properties": {"version": properties.pop("version"), **properties},
    }
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def _group(group: str) -> dict[str, Any]:
    knobs = {**KNOBS, **SETTINGS}
    return {
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": {
            name: _knob(knobs[name]) if name in knobs else OTHERS[name]
            for name in GROUP_FIELDS[group]
        },
    }


def _knob(knob: Knob) -> dict[str, Any]:
    """Its values, "auto" and null."""
    default = {} if knob.default is None else {"default": _default(knob)}
    return {
        "description": knob.source,
        **default,
        "anyOf": [_values(knob), {"enum": ["auto", None]}],
    }


def _default(knob: Knob) -> Any:
    is_json = knob.kind in ("flag", "names", "pattern")
    return json.loads(str(knob.default)) if is_json else knob.default


def _values(knob: Knob) -> dict[str, Any]:
    number = {"minimum": knob.low, "maximum": knob.high}
    names = {
        "type": "array",
        "maxItems": LAYERS_MAX,
        "items": {"type": "string", "pattern": f"^{LAYER.pattern}$"},
    }
    match knob.kind:
        case "whole":
            return {"type": "integer", **number}
        case "number":
            return {"type": "number", **number}
        case "choice":
            return {"enum": list(knob.choices)}
        case "flag":
            return {"type": "boolean"}
        case "names":
            return names
        case "layers":
            return {"anyOf": [{"const": ALL_LINEAR}, {**names, "minItems": 1}]}
        case "pattern":
            return {
                "type": "object",
                "maxProperties": LAYERS_MAX,
                "propertyNames": {"pattern": f"^{LAYER.pattern}$"},
                "additionalProperties": {"type": "integer", **number},
            }


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(document(), encoding="utf-8")
