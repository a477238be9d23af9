"""Bodies of requests about sweeps, and the configurations that they ask for."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StrictFloat, StrictInt, StrictStr

from schemas.sweep import SweepMethod
from services.gateway.jobs.domain.bodies import SEED_MAX, BudgetBody, JobRequest
from services.gateway.jobs.recipes import nearest
from services.gateway.web.domain.bodies import Body
from services.gateway.web.domain.errors import invalid
from tunery.plan.knobs import KNOBS
from tunery.plan.sweeps import COLOCATE_MAX, TRIALS_MAX, Values, draws, grid, grid_size, rung_steps

PARAMETERS_MAX: Final = 8
VALUES_MAX: Final = 64
AT_ONCE_MAX: Final = 16
STEPS_MAX: Final = 10_000_000
FACTOR: Final = 3  # of each rung, as in the paper of successive halving
GROUPS: Final = ("hyperparameters", "lora", "training")


class RangeBody(Body):
    """Values between two numbers, whole where both are."""

    min: StrictInt | StrictFloat
    max: StrictInt | StrictFloat
    scale: Literal["linear", "log"] = "linear"


class SweepRequest(Body):
    """Request for a sweep. `job`: the body of a submission, which all jobs of the sweep have in
    common.
    """

    job: JobRequest
    method: SweepMethod = "grid"
    parameters: Annotated[
        dict[
            StrictStr, RangeBody | Annotated[list[Any], Field(min_length=1, max_length=VALUES_MAX)]
        ],
        Field(min_length=1, max_length=PARAMETERS_MAX),
    ] = Field(description="values of hyper-parameters by name, or a range of them")
    trials: Annotated[StrictInt, Field(ge=1, le=TRIALS_MAX)] | None = Field(
        default=None, description="how many configurations are drawn: random and halving"
    )
    seed: Annotated[StrictInt, Field(ge=0, le=SEED_MAX)] = Field(
        default=0, description="of the draws; the same seed draws the same configurations"
    )
    at_once: Annotated[StrictInt, Field(ge=1, le=AT_ONCE_MAX)] = Field(
        default=2, description="how many of its jobs run or wait at the same time at most"
    )
    budget: BudgetBody | None = Field(default=None, description="of all its jobs together")
    colocate: Annotated[StrictInt, Field(ge=1, le=COLOCATE_MAX)] = Field(
        default=1,
        description=(
            "how many configurations one job trains in turns at most, on one slot and one base "
            "model in memory; the best of them becomes its version"
        ),
    )
    min_steps: Annotated[StrictInt, Field(ge=1, le=STEPS_MAX)] | None = Field(
        default=None, description="halving: optimizer steps of the first rung"
    )
    max_steps: Annotated[StrictInt, Field(ge=1, le=STEPS_MAX)] | None = Field(
        default=None, description="halving: optimizer steps of the last rung"
    )
    factor: Annotated[StrictInt, Field(ge=2, le=8)] = Field(
        default=FACTOR, description="halving: one of so many goes on, with so many times the steps"
    )


def configurations(request: SweepRequest) -> list[Values]:
    """Values of hyper-parameters, for each configuration. Raises ApiError 400."""
    for name, values in request.parameters.items():
        if name.rpartition(".")[2] not in KNOBS:
            text = f"{nearest(name, tuple(KNOBS))}"
            raise invalid(text, f"parameters.{name}")
        if isinstance(values, RangeBody):
            if values.min >= values.max:
                raise invalid("min must be below max", f"parameters.{name}")
            if values.scale == "log" and values.min <= 0:
                raise invalid("min must be above 0 on a log scale", f"parameters.{name}")
    parameters = {
        name.rpartition(".")[2]: values.model_dump() if isinstance(values, RangeBody) else values
        for name, values in request.parameters.items()
    }
    if request.method == "grid":
        return _grid(parameters)
    if request.trials is None:
        text = (
            f"says how many configurations are drawn, 1 to {TRIALS_MAX}; {request.method} needs it"
        )
        raise invalid(text, "trials")
    return _unique(draws(parameters, request.trials, request.seed))


def _grid(parameters: Mapping[str, Any]) -> list[Values]:
    for name, values in parameters.items():
        if isinstance(values, Mapping):
            text = "a grid takes lists of values; random and halving take ranges"
            raise invalid(text, f"parameters.{name}")
    if (count := grid_size(parameters)) > TRIALS_MAX:
        text = f"there are {count} combinations, and a sweep has at most {TRIALS_MAX}"
        raise invalid(f"{text}: name fewer values, or draw some with method random", "parameters")
    return _unique(grid(parameters))


def _unique(configured: Sequence[Values]) -> list[Values]:
    """Without those that are there already."""
    return [values for number, values in enumerate(configured) if values not in configured[:number]]


def rungs_of(request: SweepRequest) -> tuple[int, ...]:
    """Optimizer steps of each rung; none where the sweep is no halving. Raises ApiError 400."""
    if request.method != "halving":
        for name in ("min_steps", "max_steps"):
            if getattr(request, name) is not None:
                raise invalid("belongs to the method halving", name)
        return ()
    if "max_steps" in {name.rpartition(".")[2] for name in request.parameters}:
        raise invalid("a halving sets the steps of its rungs", "parameters.max_steps")
    first, last = request.min_steps, request.max_steps
    if first is None or last is None or first >= last:
        text = "a halving needs min_steps and max_steps, the first below the second"
        raise invalid(text, "min_steps")
    return rung_steps(first, last, request.factor)


def with_values(job: JobRequest, values: Values) -> JobRequest:
    """A submission with other values of some hyper-parameters, in whichever group they were."""
    body = job.model_dump(exclude_unset=True)
    groups = [body.get(group) for group in GROUPS]
    method = body.get("method") or {}
    details = [inner for inner in method.values() if isinstance(inner, dict)]
    for group in (*groups, *(inner.get("hyperparameters") for inner in details)):
        for name in values:
            if group:
                group.pop(name, None)
    body["training"] = {**(body.get("training") or {}), **values}
    return JobRequest.model_validate(body)
