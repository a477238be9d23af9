"""`/v1/fine_tuning/jobs/{job_id}/recipe`: the configuration of a job, to be run again."""

from typing import Any, Literal

from services.gateway.jobs.deps import WithJobDeps
from services.gateway.jobs.domain.integrations import shown_integrations
from services.gateway.jobs.domain.texts import texts_of
from services.gateway.jobs.recipes import recipe_of
from services.gateway.jobs.routes import find
from services.gateway.web.deps import Caller
from services.gateway.web.domain.responses import Response
from services.gateway.web.routing import new_router

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
