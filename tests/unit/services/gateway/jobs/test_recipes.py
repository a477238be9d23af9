"""A job's recipe is resolved to the same job; what is wrong with a recipe is said by name."""

from typing import Any

import pytest

from schemas.submission import Budget
from schemas.training import NodeConstraints
from services.gateway.jobs.domain.bodies import JobRequest
from services.gateway.jobs.domain.requested import requested_settings
from services.gateway.jobs.recipes import FIELDS, GROUP_FIELDS, nearest, recipe_of, recipe_problems
from simulator.control_plane.samples import spec
from tunery.plan.knobs import KNOBS


def body(recipe: dict[str, Any]) -> JobRequest:
    return JobRequest.model_validate({k: v for k, v in recipe.items() if k != "version"})


def test_the_recipe_of_a_job_has_all_that_it_was_resolved_to() -> None:
    job = spec(
        budget=Budget(max_gpu_ms=5_400_000),
        drop_max_ppm=20_000,
        constraints=NodeConstraints(
            accelerator="h200", spot=False, finish_by=9_000, domain="r", domain_wait_ms=60_000
        ),
    )
    recipe = recipe_of(job, {"suffix": "faq", "metadata": {"team": "a"}, "tags": ["night"]})
    assert recipe_problems(recipe) == []
    assert set(recipe) <= set(FIELDS)
    supervised = {
        n for n, knob in KNOBS.items() if "supervised" in (knob.methods or ("supervised",))
    }
    assert {*recipe["training"]} == {*supervised, "length_policy", "slots"} - {
        "learning_rate_multiplier",
        "threads",  # 0: it was not kept
    }
    request = body(recipe)
    assert (request.suffix, request.metadata, request.seed) == ("faq", {"team": "a"}, 1)
    assert recipe["tags"] == ["night"]
    assert recipe["budget"] == {"max_gpu_hours": 1.5}
    assert recipe["eval"] == {
        "validation_fraction": job.validation_fraction_ppm / 1e6,
        "drop_max": 0.02,
    }
    assert recipe["placement"] == {
        "accelerator": "h200",
        "spot": False,
        "finish_by": 9,
        "domain": "r",
        "domain_wait_minutes": 1,
    }


def test_what_a_job_does_not_have_is_not_in_its_recipe() -> None:
    recipe = recipe_of(spec(validation_file="file-v"), {"metadata": {}})
    assert {*FIELDS} - {*recipe} == {
        *("method", "suffix", "metadata", "tags", "integrations", "lora", "eval", "placement"),
        "budget",
    }


@pytest.mark.parametrize(
    ("recipe", "param", "message"),
    [
        ({"version": 2, "speed": 1}, "version", "this recipe is of version 2"),
        ({"version": True}, "version", "must be 1"),
        ({}, "version", "is required"),
        ({"version": 1, "dry_run": True}, "dry_run", "is not known; there are version, model"),
        ({"version": 1, "training": {"epochs": 1}}, "training.epochs", "did you mean n_epochs?"),
        ({"version": 1, "lora": 5}, "lora", "must be an object"),
        ({"version": 1, "method": {"type": "supervised", "sft": {}}}, "method.sft", "not known"),
        ({"version": 1, "budget": {"max_gpu_hours": -1}}, "budget.max_gpu_hours", "above 0"),
        (
            {"version": 1, "training": {"rank": 4}, "lora": {"rank": 5}},
            "training.rank",
            "also given as lora.rank; keep one",
        ),
    ],
)
def test_the_refusal_of_a_recipe_names_the_field(
    recipe: dict[str, Any], param: str, message: str
) -> None:
    whole = {"model": "m", "training_file": "file-1", **recipe}
    problems = recipe_problems(whole)
    assert [problem.param for problem in problems] == [param]
    assert message in problems[0].message


def test_names_that_are_near_are_suggested() -> None:
    assert nearest("leaning_rate", GROUP_FIELDS["training"]).endswith("mean learning_rate?")
    assert nearest("zzz", ("rank", "alpha")) == "is not known; there are rank, alpha"


def test_review2_a1_a_recipe_keeps_the_slots_of_its_job() -> None:
    recipe = recipe_of(spec(slots=4), {})
    assert recipe["training"]["slots"] == 4
    assert requested_settings(body(recipe))[0].own.slots == 4
