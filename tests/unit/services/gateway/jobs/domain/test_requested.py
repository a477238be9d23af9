"""The settings that a request asks for, and what is wrong with them."""

from typing import Any

import pytest

from schemas.submission import JobSettings
from services.gateway.jobs.domain.bodies import JobRequest
from services.gateway.jobs.domain.requested import RequestedSettings, requested_settings


def parsed(**fields: Any) -> tuple[RequestedSettings, list[str]]:
    body = {"model": "tiny-llama", "training_file": "file-1", **fields}
    settings, problems = requested_settings(JobRequest.model_validate(body))
    return settings, [f"{problem.param}: {problem.message}" for problem in problems]


def test_a_request_without_groups_has_the_defaults() -> None:
    settings, problems = parsed()
    assert problems == []
    assert settings == RequestedSettings(
        {},
        {},
        JobSettings(
            slots=1,
            length_policy="reject",
            validation_fraction_ppm=100_000,
            benchmark_items=1_000,
        ),
        (),
    )


def test_every_group_gives_its_settings_and_where_they_stand() -> None:
    settings, problems = parsed(
        hyperparameters={"n_epochs": 4},
        lora={"rank": 8},
        training={"slots": 1, "length_policy": "truncate", "warmup_ratio": 0.1},
        eval={"validation_fraction": 0.2, "drop_max": 0.02},
    )
    assert problems == []
    assert settings.hyper == {"n_epochs": 4, "rank": 8, "warmup_ratio": 0.1}
    assert settings.paths["rank"] == "lora.rank"
    assert settings.paths["slots"] == "training.slots"
    assert (settings.own.slots, settings.own.length_policy) == (1, "truncate")
    assert (settings.own.validation_fraction_ppm, settings.own.drop_max_ppm) == (200_000, 20_000)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            {"lora": {"n_epochs": 3}},
            (
                "lora.n_epochs: unknown; lora takes rank, alpha, dropout, "
                "target_modules, modules_to_save, rank_pattern, alpha_pattern, rslora, dora, "
                "lora_plus_ratio"
            ),
        ),
        (
            {"hyperparameters": {"rank": 8}, "lora": {"rank": 16}},
            "lora.rank: also given as hyperparameters.rank; keep one",
        ),
        (
            {"training": {"slots": True}},
            'training.slots: must be a whole number from 1 to 64, or "auto"; it is True',
        ),
        (
            {"training": {"length_policy": "drop"}},
            "training.length_policy: must be one of reject, truncate, split",
        ),
        (
            {"training": {"validation_fraction": 0.6}},
            'training.validation_fraction: must be a number from 0 to 0.5, or "auto"; it is 0.6',
        ),
        (
            {"training": {"validation_fraction": 0, "early_stopping_patience": 2}},
            (
                "training.early_stopping_patience: needs rows to validate on: name a "
                "validation_file, or set training.validation_fraction above 0"
            ),
        ),
        ({"eval": {"prompts": "Who?"}}, "eval.prompts: must be a list of 1 to 8 texts"),
        ({"eval": {"prompts": []}}, "eval.prompts: must be a list of 1 to 8 texts"),
        ({"eval": {"prompts": ["Who?"] * 9}}, "eval.prompts: must be a list of 1 to 8 texts"),
        ({"eval": {"prompts": ["Who?", " "]}}, "eval.prompts.1: must be a text, and not empty"),
        ({"eval": {"prompts": [3]}}, "eval.prompts.0: must be a text, and not empty"),
        (
            {"eval": {"prompts": ["x" * 1_001]}},
            "eval.prompts.0: has 1001 characters; at most 1000 are answered",
        ),
    ],
)
def test_a_problem_names_its_field_and_leaves_the_default(
    fields: dict[str, Any], problem: str
) -> None:
    settings, problems = parsed(**fields)
    assert problems == [problem]
    assert (settings.own.slots, settings.own.length_policy) == (1, "reject")


def test_all_problems_are_found_at_once() -> None:
    _, problems = parsed(training={"slots": 0, "length_policy": "x"}, eval={"drop_max": "2 %"})
    assert len(problems) == 3


def test_what_a_reward_model_cannot_do_is_refused() -> None:
    _, problems = parsed(
        method={"type": "reward"},
        lora={"rank": 8},
        training={"adaptation": "full", "sample_every_steps": 5},
        eval={"prompts": ["Why?"]},
    )
    assert [problem.partition(":")[0] for problem in problems] == [
        "training.adaptation",
        "training.sample_every_steps",
        "eval.prompts",
    ]
    assert "is an adapter with a head" in problems[0]
    assert "writes no answers" in problems[1]
    assert parsed(method={"type": "reward"})[1] == []
