"""`/v1/fine_tuning/alpha/graders`: check a grader, and try it on a sample, as at OpenAI."""

from typing import Annotated, Any, Final

from pydantic import Field

from services.gateway.jobs.deps import WithJobDeps
from services.gateway.jobs.score_endpoint import ScoreEndpoint
from services.gateway.web.deps import Caller
from services.gateway.web.domain.bodies import Body
from services.gateway.web.domain.errors import UNSUPPORTED, ApiError, invalid
from services.gateway.web.domain.responses import Response
from services.gateway.web.routing import new_router
from tunery.graders.grader import Grader, GraderRefused, parse
from tunery.graders.grading import (
    CUT,
    ENDPOINT_ERROR,
    FORMULA_ERROR,
    PARSE_ERROR,
    REFUSAL_ERROR,
    VARIABLE_ERROR,
)

SAMPLE_CHARACTERS_MAX: Final = 65_536
PARAM: Final = "grader"
router = new_router("fine-tuning")


class GraderValidateRequest(Body):
    """OpenAI's body: the declaration of a grader."""

    grader: dict[str, Any]


class GraderRunRequest(GraderValidateRequest):
    """OpenAI's body. `item`: a row of the training file; `model_sample`: an answer to it."""

    model_sample: Annotated[str, Field(max_length=SAMPLE_CHARACTERS_MAX)]
    item: Any = None


class GraderValidateResponse(Response):
    """The declaration as it is taken."""

    grader: dict[str, Any]


class GraderErrors(Response):
    """OpenAI's names of what may go wrong; those of `python` graders never do here."""

    formula_parse_error: bool = False
    invalid_variable_error: bool = False
    model_grader_parse_error: bool = False
    model_grader_refusal_error: bool = False
    model_grader_server_error: bool = False
    model_grader_server_error_details: str | None = None
    other_error: bool = False
    python_grader_runtime_error: bool = False
    python_grader_runtime_error_details: str | None = None
    python_grader_server_error: bool = False
    python_grader_server_error_type: str | None = None
    sample_parse_error: bool = False
    truncated_observation_error: bool = False
    unresponsive_reward_error: bool = False


class GraderMetadata(Response):
    """How a grader went. `details`: what happened, by the name of the error."""

    name: str
    type: str
    errors: GraderErrors
    execution_time: float
    scores: dict[str, float]
    sampled_model_name: str | None = None
    token_usage: int | None = None
    details: dict[str, str]


class GraderRunResponse(Response):
    reward: float
    sub_rewards: dict[str, float]
    metadata: GraderMetadata
    model_grader_token_usage_per_model: dict[str, Any]


@router.post("/v1/fine_tuning/alpha/graders/validate")
async def validate_grader(body: GraderValidateRequest, deps: WithJobDeps) -> GraderValidateResponse:
    """Check a grader without running it."""
    parsed_grader(body.grader, deps.scores)
    return GraderValidateResponse(grader=body.grader)


@router.post("/v1/fine_tuning/alpha/graders/run")
async def run_grader(
    body: GraderRunRequest, deps: WithJobDeps, _caller: Caller
) -> GraderRunResponse:
    """Grade one sample. Problems of the sample are returned with a reward of 0."""
    grader = parsed_grader(body.grader, deps.scores)
    began = deps.clock.monotonic_ms()
    result = await deps.scores.grade(grader, body.item, body.model_sample)
    return GraderRunResponse(
        reward=result.reward,
        sub_rewards=dict(result.scores),
        model_grader_token_usage_per_model={},
        metadata=GraderMetadata(
            name=grader.name,
            type=str(body.grader["type"]),
            errors=GraderErrors(
                formula_parse_error=FORMULA_ERROR in result.errors,
                invalid_variable_error=VARIABLE_ERROR in result.errors,
                truncated_observation_error=CUT in result.errors,
                model_grader_parse_error=PARSE_ERROR in result.errors,
                model_grader_refusal_error=REFUSAL_ERROR in result.errors,
                model_grader_server_error=ENDPOINT_ERROR in result.errors,
                model_grader_server_error_details=result.errors.get(ENDPOINT_ERROR),
            ),
            execution_time=(deps.clock.monotonic_ms() - began) / 1_000,
            scores=dict(result.scores),
            details=dict(result.errors),
        ),
    )


def parsed_grader(declaration: dict[str, Any], scores: ScoreEndpoint) -> Grader:
    """A grader of a request. Raises ApiError for one that is refused."""
    try:
        grader = parse(declaration, PARAM)
    except GraderRefused as error:
        raise invalid(error.problem, error.param) from error
    if (problem := scores.problem(grader)) is not None:
        raise ApiError(400, UNSUPPORTED, problem, PARAM)
    return grader
