"""From a request body to a job, without HTTP."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas.dataset import Validation
from services.gateway.jobs.bodies import JobRequest
from services.gateway.jobs.resolve import (
    InputFile,
    Minted,
    build_spec,
    canonical,
    check,
    check_file,
    check_split,
    model_id,
    slug,
    tokens_of,
)
from services.gateway.web.errors import ApiError
from tests.unit.services.gateway.control_plane import BASE
from tests.unit.services.gateway.jobs.job_events import PRICE, TOKENS

VALIDATION = Validation(
    accepted=True,
    dialect="chat",
    rows=20,
    errors=0,
    warnings=0,
    tokens=(TOKENS,),
    report_blob="r",
)
FILE = InputFile("file-1", "fine-tune", "processed", VALIDATION)
MINTED = Minted("ftjob-00000000abcdefgh", "acme", 7, None, None, "tiny-llama/line")


def request(**fields: Any) -> JobRequest:
    return JobRequest.model_validate({"model": "tiny-llama", "training_file": "file-1", **fields})


def spec_of(body: JobRequest) -> Any:
    return build_spec(body, check(body, BASE), BASE, TOKENS, PRICE, "cpu", MINTED)


def test_groups_of_hyper_parameters_become_one_job() -> None:
    spec = spec_of(
        request(
            method={"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 3}}},
            lora={"rank": 8, "alpha": "auto"},
            training={
                "learning_rate": 2e-3,
                "slots": 2,
                "length_policy": "truncate",
                "validation_fraction": 0.05,
            },
        )
    )
    assert (spec.hyper.n_epochs, spec.hyper.rank, spec.hyper.alpha) == (3, 8, 16)
    assert spec.hyper.learning_rate_ppb == 2_000_000
    assert (spec.slots, spec.length_policy, spec.validation_fraction_ppm) == (2, "truncate", 50_000)
    assert "alpha" in spec.auto
    assert "rank" not in spec.auto


def test_only_plain_text_is_split() -> None:
    wishes = check(request(training={"length_policy": "split"}), BASE)
    text = replace(VALIDATION, dialect="text")
    for validation in (None, text):
        check_split(wishes, InputFile("file-1", "fine-tune", "processed", validation))
    with pytest.raises(ApiError, match=r"file-1 is chat; use reject or truncate") as refused:
        check_split(wishes, FILE)
    assert (refused.value.status, refused.value.param) == (400, "training.length_policy")
    check_split(check(request(), BASE), FILE)


def test_the_deprecated_top_level_form_is_understood() -> None:
    spec = spec_of(request(hyperparameters={"n_epochs": 4, "batch_size": "auto"}))
    assert spec.hyper.n_epochs == 4
    assert "batch_size" in spec.auto


def test_a_validation_file_leaves_the_training_file_whole() -> None:
    assert spec_of(request(validation_file="file-2")).validation_fraction_ppm == 0
    assert spec_of(request()).validation_fraction_ppm == 100_000


def test_the_same_parameter_twice_is_a_problem_unless_equal() -> None:
    twice = request(hyperparameters={"n_epochs": 4}, training={"n_epochs": 5})
    with pytest.raises(ApiError, match=r"training\.n_epochs: also given as hyperparameters"):
        check(twice, BASE)
    assert check(request(hyperparameters={"n_epochs": 4}, training={"n_epochs": 4}), BASE)


def test_an_unknown_model_alone_is_404_and_with_other_problems_one_of_them() -> None:
    with pytest.raises(ApiError) as alone:
        check(request(), None)
    assert alone.value.status == 404
    with pytest.raises(ApiError) as among:
        check(request(training={"slots": 0}), None)
    assert among.value.status == 400
    assert among.value.param == "model"
    assert "training.slots" in among.value.message


@pytest.mark.parametrize(
    ("suffix", "shown"),
    [
        ("demo", "demo"),
        ("My Style!", "my-style"),
        ("a:b/c", "a-b-c"),
        ("日本", ""),
        ("v1.2_x", "v1.2_x"),
    ],
)
def test_suffixes_as_they_stand_in_a_name(suffix: str, shown: str) -> None:
    assert slug(suffix) == shown
    assert model_id("base", "acme", suffix, MINTED.job_id) == f"ft:base:acme:{shown}:abcdefgh"


def test_equal_requests_are_equal_bytes() -> None:
    one = JobRequest.model_validate_json(b'{"model": "m", "training_file": "f", "seed": 1}')
    other = JobRequest.model_validate_json(b'{ "seed":1, "training_file":"f", "model":"m" }')
    assert canonical(one) == canonical(other)
    assert canonical(one) != canonical(one.model_copy(update={"seed": 2}))


def test_files_that_a_job_cannot_use_are_refused() -> None:
    with pytest.raises(ApiError, match="No such File object: file-1"):
        check_file(None, "file-1", "training_file")
    results = InputFile("file-1", "fine-tune-results", "processed", None)
    with pytest.raises(ApiError, match="purpose 'fine-tune'"):
        check_file(results, "file-1", "training_file")
    bad = InputFile("file-1", "fine-tune", "error", replace(VALIDATION, errors=3))
    with pytest.raises(ApiError, match="rejected with 3 errors"):
        check_file(bad, "file-1", "validation_file")
    check_file(FILE, "file-1", "training_file")


def test_tokens_are_those_of_this_base_and_no_other() -> None:
    assert tokens_of(FILE, BASE) == TOKENS
    assert tokens_of(InputFile("file-1", "fine-tune", "uploaded", None), BASE) is None
    with pytest.raises(ApiError, match="checked before tiny-llama was added"):
        tokens_of(FILE, replace(BASE, sha256="cd" * 32))


def test_the_evals_share_of_rows_may_be_given_in_either_group() -> None:
    assert spec_of(request(eval={"validation_fraction": 0.2})).validation_fraction_ppm == 200_000
    both = request(eval={"validation_fraction": 0.2}, training={"validation_fraction": 0.1})
    with pytest.raises(ApiError) as refused:
        check(both, BASE)
    assert refused.value.param == "eval.validation_fraction"
    with pytest.raises(ApiError) as unknown:
        check(request(eval={"judge": "x"}), BASE)
    assert "eval takes validation_fraction, drop_max" in unknown.value.message


def test_how_much_the_gate_allows_may_be_given() -> None:
    assert spec_of(request(eval={"drop_max": 0.02})).drop_max_ppm == 20_000
    assert spec_of(request(eval={"drop_max": None})).drop_max_ppm is None
    for group, value in (("eval", 0.6), ("eval", "2 %"), ("eval", True), ("training", 0.02)):
        with pytest.raises(ApiError) as refused:
            check(request(**{group: {"drop_max": value}}), BASE)
        assert refused.value.param == f"{group}.drop_max"


def test_a_budget_becomes_integers() -> None:
    budget = spec_of(request(budget={"max_gpu_hours": 0.5})).budget
    assert (budget.max_gpu_ms, budget.max_amount_micro) == (1_800_000, None)
    assert spec_of(request()).budget is None


@pytest.mark.parametrize(
    "method",
    [
        {"type": "dpo", "dpo": {"hyperparameters": {"beta": 0.1, "n_epochs": "auto"}}},
        {"type": "reinforcement", "reinforcement": {"grader": {"type": "string_check"}}},
        {"type": "orpo"},
    ],
)
def test_methods_that_are_not_built_name_what_is(method: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        check(request(method=method), BASE)
    assert (refused.value.status, refused.value.param) == (400, "method.type")
    assert refused.value.code == "unsupported"
    assert "supported: supervised" in refused.value.message


def test_every_form_of_a_hyper_parameter_is_the_same_wish() -> None:
    method = {"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 3}}}
    new = spec_of(request(method=method))
    assert spec_of(request(hyperparameters={"n_epochs": 3})) == new
    assert spec_of(request(method=method, hyperparameters={"n_epochs": 3})) == new
    auto = spec_of(request(hyperparameters={"n_epochs": "auto", "batch_size": None}))
    assert auto == spec_of(request())
    with pytest.raises(ApiError) as refused:
        check(request(method=method, hyperparameters={"n_epochs": 4}), BASE)
    assert refused.value.param == "hyperparameters.n_epochs"
