"""Every field of the recipe is reachable, has a range, a default with its source, and a line."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from schemas.training import HyperParameters
from services.gateway.jobs.domain.bodies import JobRequest
from services.gateway.jobs.domain.requested import requested_settings
from tests.unit.tunery.graders.test_grader import CHECK
from tests.unit.tunery.plan.samples import SMOL
from tunery.cli._recipes import put
from tunery.cli.job import _parsed
from tunery.plan.hyperparameters import problems, request_of, resolve
from tunery.plan.knobs import ADAPTER_KNOBS, KNOBS, Knob, table
from tunery.work.spec import ALL_LINEAR, Hyper

GUIDE: Final = Path(__file__).parents[4] / "docs" / "reference" / "hyperparameters.md"
DIVIDED: Final = ("tensor_parallel", "context_parallel")  # of as many slots
# Fields that the agent gives to the process beside `Hyper`.
BESIDE: Final = {
    "engine",
    "shard_weights",
    *DIVIDED,
    "offload",
    "precision",
    "threads",
    "checkpoint_every_steps",
    "checkpoint_every_ms",
    "checkpoint_share_ppm",
    "checkpoint_each_epoch",
    "keep_checkpoints",
}


def other_value(knob: Knob) -> Any:
    """A value that is not the default."""
    match knob.kind:
        case "choice":
            return knob.choices[-1]
        case "flag":
            by_rule = knob.field in ("checkpoint_each_epoch", "packing")  # true by their rules
            return knob.default != "true" and not by_rule
        case "names":
            return ["lm_head"]
        case "pattern":
            return {"v_proj": 3, "q_proj": 5}
        case "layers":
            return ["v_proj", "q_proj"]
        case "whole" | "number":
            return knob.high if knob.low == knob.default else knob.low


@pytest.mark.parametrize("name", KNOBS)
def test_every_knob_reaches_the_training_from_the_command_line_and_the_api(name: str) -> None:
    knob = KNOBS[name]
    body: dict[str, Any] = {"model": "m", "training_file": "file-1"}
    if knob.methods:
        put(body, *_parsed(f"method.type={knob.methods[0]}"))
    if knob.methods == ("reinforcement",):
        put(body, "method.reinforcement.grader", CHECK)
    value = {"accumulation": 4, "threads": 7, "max_length": 640}.get(name, other_value(knob))
    if name == "learning_rate_multiplier":
        value = 2
    if knob.methods != ("reward",):  # its models write nothing
        put(body, *_parsed('eval.prompts=["Who?"]'))
    slots = 8 if name in ("engine", "shard_weights", *DIVIDED) else 1
    put(body, *_parsed(f"training.batch_size={8}"))
    put(body, *_parsed(f"training.{name}={json.dumps(value)}"))
    settings, refused = requested_settings(JobRequest.model_validate(body))
    assert (refused, problems(settings.hyper, SMOL, slots)) == ([], ())
    method = {"method": knob.methods[0]} if knob.methods else {}
    usual, _ = resolve({"batch_size": 8, **method}, SMOL, None, 1)
    hyper, _ = resolve(settings.hyper, SMOL, None, 1)
    assert getattr(hyper, knob.field) != getattr(usual, knob.field)
    assert resolve(request_of(hyper), SMOL, None, 1)[0] == hyper
    assert knob.field in BESIDE or Hyper.from_log(hyper) != Hyper.from_log(usual)


def test_training_full_has_nothing_of_an_adapter_and_may_say_so() -> None:
    says_nothing = {"dropout": 0, "rslora": False, "rank_pattern": {}, "rank": "auto"}
    asked: dict[str, Any] = {"adaptation": "full", **says_nothing}
    assert problems(asked, SMOL) == ()
    hyper, _ = resolve(asked, SMOL, None, 1)
    assert (hyper.rank, hyper.alpha, hyper.dropout_ppm) == (0, 0, 0)
    assert ADAPTER_KNOBS.keys().isdisjoint(request_of(hyper))
    assert resolve(request_of(hyper), SMOL, None, 1)[0] == hyper


def test_every_field_of_the_recipe_has_a_knob() -> None:
    fields = set(HyperParameters.__struct_fields__)
    of_job_and_nodes = {"seed", "method", "shards"}
    assert {knob.field for knob in KNOBS.values()} == fields - of_job_and_nodes


def test_the_guide_has_the_table_of_all_knobs() -> None:
    assert table() in GUIDE.read_text(encoding="utf-8")
    assert all(knob.source for knob in KNOBS.values())


def test_every_default_is_in_its_range() -> None:
    for name, knob in KNOBS.items():
        if knob.kind not in ("flag", "names", "pattern"):
            assert knob.default is None or knob.allows(knob.default), name
    assert resolve(dict.fromkeys(KNOBS, "auto"), SMOL, None, 1) == resolve(None, SMOL, None, 1)


@pytest.mark.parametrize(
    ("asked", "param", "code"),
    [
        ({"scheduler": "polynomial"}, "scheduler", "not_a_choice"),
        ({"precision": "int4"}, "precision", "not_a_choice"),
        ({"adaptation": "adapter"}, "adaptation", "not_a_choice"),
        ({"dora": "yes"}, "dora", "not_a_choice"),
        ({"rslora": 1}, "rslora", "not_a_choice"),
        ({"target_modules": "q_proj"}, "target_modules", "not_layers"),
        ({"target_modules": []}, "target_modules", "not_layers"),
        ({"target_modules": ["q proj"]}, "target_modules", "not_layers"),
        ({"target_modules": ["q"] * 33}, "target_modules", "not_layers"),
        ({"modules_to_save": "lm_head"}, "modules_to_save", "not_names"),
        ({"rank_pattern": {"q_proj": 0}}, "rank_pattern", "not_a_pattern"),
        ({"rank_pattern": {"q proj": 8}}, "rank_pattern", "not_a_pattern"),
        ({"alpha_pattern": ["q_proj"]}, "alpha_pattern", "not_a_pattern"),
        ({"alpha_pattern": {"q_proj": 1.5}}, "alpha_pattern", "not_a_pattern"),
        ({"accumulation": 3, "batch_size": 8}, "accumulation", "does_not_divide"),
        ({"accumulation": 2}, "accumulation", "does_not_divide"),
        ({"max_steps": -1}, "max_steps", "not_whole_in_range"),
        ({"lora_plus_ratio": 0.5}, "lora_plus_ratio", "not_in_range"),
        ({"beta": 0.1}, "beta", "of_other_method"),
        ({"adaptation": "full", "rank": 8}, "rank", "of_an_adapter"),
        ({"adaptation": "full", "rslora": True}, "rslora", "of_an_adapter"),
        ({"adaptation": "full", "target_modules": ["q_proj"]}, "target_modules", "of_an_adapter"),
        ({"adaptation": "full", "lora_plus_ratio": 16}, "lora_plus_ratio", "of_an_adapter"),
        ({"method": "dpo", "beta": 0}, "beta", "not_in_range"),
        ({"method": "dpo", "loss_type": "orpo"}, "loss_type", "not_a_choice"),
        ({"method": "simpo", "loss_type": "ipo"}, "loss_type", "of_other_method"),
        ({"method": "orpo", "label_smoothing": 0.1}, "label_smoothing", "of_other_method"),
        ({"method": "dpo", "gamma": 1}, "gamma", "of_other_method"),
        ({"center_rewards_coefficient": 1}, "center_rewards_coefficient", "of_other_method"),
        ({"method": "orpo", "desirable_weight": 2}, "desirable_weight", "of_other_method"),
        ({"method": "kto", "loss_type": "ipo"}, "loss_type", "of_other_method"),
        ({"method": "dpo", "label_smoothing": 0.5}, "label_smoothing", "not_in_range"),
        (
            {"method": "dpo", "loss_type": "ipo", "label_smoothing": 0.1},
            "label_smoothing",
            "not_smoothed",
        ),
        ({"method": "dpo", "loss_type": "exo_pair"}, "loss_type", "needs_smoothing"),
    ],
)
def test_what_no_knob_takes_is_refused_by_its_name(
    asked: dict[str, Any], param: str, code: str
) -> None:
    (problem,) = problems(asked, SMOL)
    assert (problem.param, problem.reason.code) == (param, code)


def test_names_of_layers_are_a_set() -> None:
    hyper, _ = resolve({"target_modules": ["v_proj", "q_proj", "v_proj"]}, SMOL, None, 1)
    assert hyper.target_modules == ("q_proj", "v_proj")
    assert Hyper.from_log(resolve(None, SMOL, None, 1)[0]).target_modules == ALL_LINEAR
