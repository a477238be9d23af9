"""The JSON Schema of recipes, made from their fields: `python -m tests.repo.recipes`."""

import json
from pathlib import Path
from typing import Any, Final

from schemas.units import PPM
from services.gateway.jobs.mixtures import (
    MIXTURE_FILES_MAX,
    WEIGHT,
    WEIGHT_MAX,
    WEIGHT_MIN_PPM,
)
from services.gateway.jobs.recipes import GROUP_FIELDS, OF_REQUESTS, Recipe
from services.gateway.jobs.requested import (
    BENCHMARKS_MAX,
    DROP_MAX,
    LENGTH_POLICIES,
    MEASURED_ROWS_MAX,
    MEASURED_ROWS_MIN,
    PROMPT_CHARACTERS_MAX,
    PROMPTS_MAX,
    VALIDATION_FRACTION_MAX,
)
from tunery.benchmarks.task import ITEMS_MAX, ITEMS_MIN
from tunery.measures.declaration import MEASURES_MAX, NAMES
from tunery.plan.knobs import KNOBS, LAYER, LAYERS_MAX, Knob
from tunery.plan.micro_batches import RANKS_MAX
from tunery.work.spec import ALL_LINEAR

FILE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "recipe.schema.json"
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
#: settings of the groups that are no hyper-parameters
OTHERS: Final[dict[str, Any]] = {
    "slots": {"type": "integer", "minimum": 1, "maximum": RANKS_MAX},
    "length_policy": {"enum": list(LENGTH_POLICIES)},
    "validation_fraction": {"type": "number", "minimum": 0, "maximum": VALIDATION_FRACTION_MAX},
    "drop_max": {"type": "number", "minimum": 0, "maximum": DROP_MAX},
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
    "measured_rows": {
        "type": "integer",
        "minimum": MEASURED_ROWS_MIN,
        "maximum": MEASURED_ROWS_MAX,
    },
    "benchmarks": {
        "type": "array",
        "items": {"type": "string"},
        "maxItems": BENCHMARKS_MAX,
    },
    "benchmark_items": {
        "type": "integer",
        "minimum": ITEMS_MIN,
        "maximum": ITEMS_MAX,
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
    return {
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": {
            name: _knob(KNOBS[name]) if name in KNOBS else OTHERS[name]
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
    FILE.write_text(document(), encoding="utf-8")
