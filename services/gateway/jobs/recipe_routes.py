"""`/v1/fine_tuning/jobs/{job_id}/recipe`: the configuration of a job, to be run again."""

from typing import Any, Literal

from services.gateway.jobs.deps import WithJobDeps
from services.gateway.jobs.integrations import shown_integrations
from services.gateway.jobs.recipes import recipe_of
from services.gateway.jobs.responses import grader_of, measures_of, metadata_of, prompts_of
from services.gateway.jobs.routes import find
from services.gateway.web.deps import Caller
from services.gateway.web.responses import Response
from services.gateway.web.routing import new_router

router = new_router("fine-tuning")


class RecipeResponse(Response):
    """`recipe`: the body of a submission that is resolved to the same, and its `version`."""

    object: Literal["fine_tuning.job.recipe"] = "fine_tuning.job.recipe"
    job_id: str
    recipe: dict[str, Any]


@router.get("/v1/fine_tuning/jobs/{job_id}/recipe")
async def job_recipe(job_id: str, deps: WithJobDeps, caller: Caller) -> RecipeResponse:
    """The recipe of a job: all that it was resolved to, so that it can be run again."""
    row = await find(deps, caller, job_id)
    suffix, prompts = (
        deps.unseal(row.suffix, "suffix"),
        prompts_of(deps.unseal(row.spec.prompts, "prompts")),
    )
    grader = grader_of(deps.unseal(row.spec.grader, "grader"))
    measures = measures_of(deps.unseal(row.spec.measures, "measures"))
    integrations = shown_integrations(row.spec, deps.unseal)
    metadata = metadata_of(row, deps.unseal)
    recipe = recipe_of(row.settled, suffix, metadata, prompts, grader, measures, integrations)
    return RecipeResponse(job_id=row.id, recipe=recipe)
