"""Recipes: a job's configuration as a document that can be kept, changed and run again.

A recipe is the body of a submission with the number of its format.
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, Literal

from pydantic import ValidationError

from schemas.submission import Budget, JobSpec
from schemas.units import HOUR_MS
from services.gateway.jobs.deps import WithJobDeps
from services.gateway.jobs.domain.bodies import (
    METHODS,
    BudgetBody,
    JobRequest,
    Method,
    MethodDetails,
    PlacementBody,
    ReinforcementDetails,
)
from services.gateway.jobs.domain.integrations import shown_integrations
from services.gateway.jobs.domain.mixtures import as_requested
from services.gateway.jobs.domain.requested import (
    GROUPS,
    OWN,
    RequestProblem,
    requested_settings,
    shown_placement,
    shown_settings,
)
from services.gateway.jobs.domain.texts import put, texts_of
from services.gateway.jobs.routes import find
from services.gateway.web.deps import Caller
from services.gateway.web.domain.responses import Response
from services.gateway.web.problems import problem_words
from services.gateway.web.routing import new_router
from services.gateway.wording import parameter_words
from tunery.plan import hyperparameters
from tunery.plan.knobs import KNOBS

RECIPE_VERSION: Final = 1
#: fields of a submission that are not of a recipe: of one request, or older forms of others
OF_REQUESTS: Final = ("hyperparameters", "dry_run")
NAMES_SAID_MAX: Final = 12
STAND_INS: Final[Mapping[str, str]] = {"model": "unknown", "training_file": "unknown"}
FIELDS: Final[tuple[str, ...]] = (
    "version",
    *(name for name in JobRequest.model_fields if name not in OF_REQUESTS),
)
#: fields of the groups of a recipe; the groups of hyper-parameters come from `GROUPS` and `KNOBS`
GROUP_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "": FIELDS,
    "method": tuple(Method.model_fields),
    **{f"method.{method}": tuple(MethodDetails.model_fields) for method in METHODS},
    "method.reinforcement": tuple(ReinforcementDetails.model_fields),
    **{f"method.{method}.hyperparameters": tuple(KNOBS) for method in METHODS},
    "budget": tuple(BudgetBody.model_fields),
    "placement": tuple(PlacementBody.model_fields),
    "training": (*KNOBS, *OWN["training"]),
    **GROUPS,
}


class Recipe(JobRequest):
    """A recipe of version 1. Its fields are those of a submission, but for `OF_REQUESTS`."""

    version: Literal[1]


def nearest(name: str, known: tuple[str, ...]) -> str:
    """Return a clause that says a name is not known, with the closest or the known names."""
    if close := get_close_matches(name, known, n=1):
        return f"is not known; did you mean {close[0]}?"
    more = ", …" if len(known) > NAMES_SAID_MAX else ""
    return f"is not known; there are {', '.join(known[:NAMES_SAID_MAX])}{more}"


def recipe_problems(recipe: Mapping[str, Any]) -> list[RequestProblem]:
    """Everything that is wrong with a recipe, without knowing its base model and its files."""
    if (problem := _version_problem(recipe)) is not None:
        return [problem]  # another version has other fields
    problems = list(_unknown_names(recipe))
    unknown = {problem.param for problem in problems}
    sound = {name: value for name, value in _without(recipe, unknown).items() if name in FIELDS}
    wrong: set[str] = set()
    try:
        Recipe.model_validate(sound)
    except ValidationError as error:
        for detail in error.errors():
            path = [str(part) for part in detail["loc"] if not str(part).startswith("function-")]
            wrong.add(path[0])
            problems.append(RequestProblem(".".join(path), problem_words(detail)))
    fields = {name: value for name, value in sound.items() if name not in {"version", *wrong}}
    settings, more = requested_settings(JobRequest.model_validate({**STAND_INS, **fields}))
    problems += more
    problems += [
        RequestProblem(settings.paths[problem.param], parameter_words(problem.reason))
        for problem in hyperparameters.problems(settings.hyper, None)
        if settings.paths.get(problem.param) not in unknown
    ]
    return problems


def _version_problem(recipe: Mapping[str, Any]) -> RequestProblem | None:
    version = recipe.get("version")
    if version is None:
        return RequestProblem("version", f"is required: write version: {RECIPE_VERSION}")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        return RequestProblem("version", f"must be {RECIPE_VERSION}")
    if version > RECIPE_VERSION:
        text = (
            f"this recipe is of version {version}, and version {RECIPE_VERSION} is the newest that "
            "is known here: update Tunery, or write the recipe for that version"
        )
        return RequestProblem("version", text)
    return None


def _unknown_names(recipe: Mapping[str, Any], group: str = "") -> Iterator[RequestProblem]:
    known = GROUP_FIELDS[group]
    for name, value in recipe.items():
        path = f"{group}.{name}" if group else name
        if name not in known:
            yield RequestProblem(path, nearest(name, known))
        elif path in GROUP_FIELDS and isinstance(value, Mapping):
            yield from _unknown_names(value, path)


def _without(recipe: Mapping[str, Any], unknown: set[str], group: str = "") -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in recipe.items():
        path = f"{group}.{name}" if group else name
        if path not in unknown:
            nested = isinstance(value, Mapping) and path in GROUP_FIELDS
            kept[name] = _without(value, unknown, path) if nested else value
    return kept


def recipe_of(
    spec: JobSpec, texts: Mapping[str, Any], integrations: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """The recipe of a job: submitted again, with the same files, it is resolved to the same."""
    evaluation = shown_settings(spec, "eval")
    evaluation["benchmarks"] = [benchmark.name for benchmark in spec.benchmarks] or None
    if spec.validation_file is not None:
        evaluation["validation_fraction"] = None
    training = hyperparameters.request_of(spec.hyper)
    method = training.pop("method", None)
    recipe: dict[str, Any] = {
        "version": RECIPE_VERSION,
        "model": spec.base.base_id if spec.start is None else spec.start.model_id,
        "training_file": spec.training_file,
        "validation_file": spec.validation_file,
        "method": None if method is None else {"type": method},
        "seed": spec.hyper.seed,
        "integrations": list(integrations) or None,
        "training": {
            **training,
            "slots": spec.slots,
            "length_policy": spec.length_policy,
            **({"reasoning": spec.reasoning} if spec.reasoning != "keep" else {}),
            **({"mixture": as_requested(spec.mixture)} if spec.mixture else {}),
        },
        "eval": _present(evaluation),
        "placement": _present(shown_placement(spec.constraints)),
        "budget": _budget(spec.budget),
    }
    recipe = _present(recipe)
    for name, value in texts.items():
        if value:
            put(recipe, name, value)
    return recipe


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, {}, [])}


def _budget(asked: Budget | None) -> dict[str, Any]:
    if asked is None:
        return {}
    hours = None if asked.max_gpu_ms is None else asked.max_gpu_ms / HOUR_MS
    return _present({"max_gpu_hours": hours, "max_amount_micro": asked.max_amount_micro})


router = new_router("fine-tuning")


class RecipeResponse(Response):
    """The recipe of a job. `recipe`: body of a submission that resolves to the same job, and its
    `version`.
    """

    object: Literal["fine_tuning.job.recipe"] = "fine_tuning.job.recipe"
    job_id: str
    recipe: dict[str, Any]


@router.get("/v1/fine_tuning/jobs/{job_id}/recipe")
async def job_recipe(job_id: str, deps: WithJobDeps, caller: Caller) -> RecipeResponse:
    """The recipe of a job: all that it was resolved to, so that it can be run again."""
    row = await find(deps, caller, job_id)
    texts = texts_of(row.spec, deps.unseal)
    recipe = recipe_of(row.settled, texts, shown_integrations(row.spec, deps.unseal))
    return RecipeResponse(job_id=row.id, recipe=recipe)
