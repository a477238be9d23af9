"""Collects the settings of a request from the five groups that may contain them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from reprlib import repr as repr_short
from typing import Any, Final, get_args

from schemas.dataset import LengthPolicy, RowKind
from schemas.units import PPM
from services.gateway.jobs.bodies import METHODS, JobRequest
from services.gateway.jobs.mixtures import RequestedFile, requested_mixture
from tunery.benchmarks.task import ITEMS_MAX, ITEMS_MIN
from tunery.graders.grader import GraderRefused, asks_models, parse
from tunery.measures.declaration import parse_measures
from tunery.plan.hyperparameters import SUPERVISED
from tunery.plan.knobs import ADAPTER_KNOBS
from tunery.plan.methods import REWARD, ROWS_OF_METHOD
from tunery.plan.micro_batches import RANKS_MAX

LENGTH_POLICIES: Final[tuple[LengthPolicy, ...]] = get_args(LengthPolicy)
VALIDATION_FRACTION_PPM: Final = 100_000
VALIDATION_FRACTION_MAX: Final = 0.5
DROP_MAX: Final = 0.5
PROMPTS: Final = "eval.prompts"
SLOTS: Final = "training.slots"
MEASURES: Final = "eval.measures"
MEASURED_ROWS: Final = "eval.measured_rows"
BENCHMARKS: Final = "eval.benchmarks"
BENCHMARK_ITEMS: Final = "eval.benchmark_items"
BENCHMARKS_MAX: Final = 8
BENCHMARK_ITEMS_USUAL: Final = 1_000  # a drop of 2 points needs about 2,000
MEASURED_ROWS_MIN: Final = 20  # fewer decide nothing
MEASURED_ROWS_USUAL: Final = 64
MEASURED_ROWS_MAX: Final = 256
PROMPTS_MAX: Final = 8
PROMPT_CHARACTERS_MAX: Final = 1_000
# settings of a group that are not passed to the trainer
OWN: Final[Mapping[str, tuple[str, ...]]] = {
    "training": ("slots", "length_policy", "validation_fraction", "mixture"),
    "eval": (
        "validation_fraction",
        "drop_max",
        "prompts",
        "measures",
        "measured_rows",
        "benchmarks",
        "benchmark_items",
    ),
}
# groups that accept only these names; the others accept every hyper-parameter
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {"lora": tuple(ADAPTER_KNOBS), "eval": OWN["eval"]}
LENGTH_POLICY: Final = "training.length_policy"
SAMPLES: Final = "sample_every_steps"
REINFORCEMENT: Final = "reinforcement"
GRADER: Final = f"method.{REINFORCEMENT}.grader"
EVAL_INTERVAL: Final = "eval_interval"  # OpenAI's name
NOT_BUILT: Final[Mapping[str, str]] = {
    "compute_multiplier": "set num_generations, the number of answers to each prompt",
    "eval_samples": "the likeliest answer to each prompt that validates is graded",
    "reasoning_effort": "write it into the prompt",
}
ON_VALIDATION: Final = ("eval_every_steps", "best_checkpoint", "early_stopping_patience")


@dataclass(frozen=True)
class RequestedSettings:
    """The settings of a request.

    hyper: hyper-parameters by name, numbers or "auto". paths: name → the field that it came from.
    drop_max_ppm: None for the gate's default. prompts: what base and adapter answer; none for the
    bundled ones. grader: what says the worth of answers; None: the method grades none. measures: of
    answers to rows that validate, none: nothing is measured; measured_rows: how many are answered.
    mixture: further files it trains on. benchmarks: names of those that both sides answer besides
    those of the policy, benchmark_items: at most so many items of each.
    """

    hyper: Mapping[str, Any]
    paths: Mapping[str, str]
    slots: int
    length_policy: LengthPolicy
    validation_fraction_ppm: int
    drop_max_ppm: int | None
    prompts: tuple[str, ...]
    grader: Mapping[str, Any] | None = None
    measures: tuple[Any, ...] = ()
    measured_rows: int = 0
    mixture: tuple[RequestedFile, ...] = ()
    benchmarks: tuple[str, ...] = ()
    benchmark_items: int = BENCHMARK_ITEMS_USUAL

    @property
    def method(self) -> str:
        return str(self.hyper.get("method", SUPERVISED))

    @property
    def asks_models(self) -> bool:
        """Whether its grader does."""
        return self.grader is not None and asks_models(parse(self.grader))

    @property
    def rows(self) -> RowKind | None:
        """What the method learns from; None: it is not known."""
        return next((kind for name, kind in ROWS_OF_METHOD.items() if name == self.method), None)


@dataclass(frozen=True)
class RequestProblem:
    """What is wrong with a field of a request: its name, and what to do."""

    param: str
    message: str


@dataclass
class _Values:
    """Values by name while they are collected; `own`: those that are not passed to the trainer."""

    hyper: dict[str, Any] = field(default_factory=dict)
    own: dict[str, Any] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)
    problems: list[RequestProblem] = field(default_factory=list)

    def refuse(self, param: str, message: str) -> None:
        self.problems.append(RequestProblem(param, message))


def requested_settings(request: JobRequest) -> tuple[RequestedSettings, list[RequestProblem]]:
    """The settings of a request, and all problems; settings with a problem have their default."""
    values = _Values()
    for group, items in _groups(request):
        for name, value in items.items():
            _collect(values, group, name, value)
    _method(values, request)
    _openais(values)
    own, paths = values.own, values.paths
    fraction_path = paths.get("validation_fraction", "")
    fraction_ppm = _share_ppm(
        values, own.get("validation_fraction"), fraction_path, VALIDATION_FRACTION_MAX
    )
    settings = RequestedSettings(
        hyper=values.hyper,
        paths=paths,
        slots=_slots(values, own.get("slots")),
        length_policy=_length_policy(values, own.get("length_policy", "reject")),
        validation_fraction_ppm=VALIDATION_FRACTION_PPM if fraction_ppm is None else fraction_ppm,
        drop_max_ppm=_share_ppm(values, own.get("drop_max"), "eval.drop_max", DROP_MAX),
        prompts=_prompts(values, own.get("prompts")),
        grader=_grader(values, request),
        measures=_measures(values, request, own.get("measures")),
        measured_rows=_measured_rows(values, own),
        mixture=_mixture(values, own.get("mixture")),
        benchmarks=_benchmarks(values, own.get("benchmarks")),
        benchmark_items=_benchmark_items(values, own.get("benchmark_items")),
    )
    _refuse_of_reward(values)
    if request.validation_file is None and not settings.validation_fraction_ppm:
        _refuse_evaluations(values)
    if not settings.prompts and values.hyper.get(SAMPLES) not in (None, "auto", 0):
        values.refuse(values.paths[SAMPLES], f"needs prompts to answer: name some in {PROMPTS}")
    return settings, values.problems


def _refuse_evaluations(values: _Values) -> None:
    asked = [name for name in ON_VALIDATION if values.hyper.get(name) not in (None, "auto", 0)]
    if values.own.get("measures") is not None:
        asked.append("measures")
    for name in asked:
        text = (
            "needs rows to validate on: name a validation_file, or set "
            "training.validation_fraction above 0"
        )
        values.refuse(values.paths[name], text)


def _refuse_of_reward(values: _Values) -> None:
    """What does not go together with a reward model, which writes no answers."""
    if values.hyper.get("method") != REWARD:
        return
    if values.hyper.get("adaptation") == "full":
        text = "a reward model is an adapter with a head for rewards; use lora or qlora"
        values.refuse(values.paths["adaptation"], text)
    for name, value in (
        (SAMPLES, values.hyper.get(SAMPLES)),
        ("prompts", values.own.get("prompts")),
        ("measures", values.own.get("measures")),
        ("benchmarks", values.own.get("benchmarks")),
    ):
        if value not in (None, "auto", 0):
            text = "a reward model writes no answers: leave it out, or train with another method"
            values.refuse(values.paths[name], text)


def _groups(request: JobRequest) -> list[tuple[str, Mapping[str, Any]]]:
    name = SUPERVISED if request.method is None else request.method.type
    details = getattr(request.method, name, None) if name in METHODS else None
    return [
        (f"method.{name}.hyperparameters", (details and details.hyperparameters) or {}),
        ("hyperparameters", request.hyperparameters or {}),
        ("lora", request.lora or {}),
        ("training", request.training or {}),
        ("eval", request.eval or {}),
    ]


def _method(values: _Values, request: JobRequest) -> None:
    """Passed on among the hyper-parameters: most follow it."""
    if request.method is not None and request.method.type != SUPERVISED:
        values.hyper["method"] = request.method.type


def _openais(values: _Values) -> None:
    """Settings of `reinforcement` with names of OpenAI's: one has another here, some are not."""
    group = f"method.{REINFORCEMENT}.hyperparameters"
    for name, advice in NOT_BUILT.items():
        if values.paths.get(name) != f"{group}.{name}":
            continue
        if values.hyper.pop(name) not in (None, "auto", "default"):
            values.refuse(values.paths.pop(name), f"is not built here: {advice}")
    if EVAL_INTERVAL in values.paths:
        path = values.paths.pop(EVAL_INTERVAL)
        _collect(values, path.rpartition(".")[0], ON_VALIDATION[0], values.hyper.pop(EVAL_INTERVAL))
        values.paths[ON_VALIDATION[0]] = path


def _grader(values: _Values, request: JobRequest) -> Mapping[str, Any] | None:
    """The grader of a method that needs one, once it was checked."""
    method = request.method
    if method is None or method.type != REINFORCEMENT:
        return None
    details = method.reinforcement
    if details is None or details.grader is None:
        values.refuse(GRADER, "is required: it says what an answer is worth")
        return None
    if details.response_format is not None:
        text = "is not built; ask for the form in the prompt, and let the grader reward it"
        values.refuse(f"method.{REINFORCEMENT}.response_format", text)
    if values.hyper.get("adaptation") == "full":
        text = "the method reinforcement compares with the model without adapter; use lora or qlora"
        values.refuse(values.paths["adaptation"], text)
    try:
        parse(details.grader, GRADER)
    except GraderRefused as error:
        values.refuse(error.param, error.problem)
        return None
    return details.grader


def _measures(values: _Values, request: JobRequest, value: Any) -> tuple[Any, ...]:
    """What answers to validation rows are measured by, once it was checked."""
    if value is None:
        return ()
    if request.method is not None and request.method.type == REINFORCEMENT:
        text = f"compare with the answers of rows, which {REINFORCEMENT} has not; it has its grader"
        values.refuse(MEASURES, text)
    try:
        parse_measures(value, MEASURES)
    except GraderRefused as error:
        values.refuse(error.param, error.problem)
        return ()
    return tuple(value)


def _benchmarks(values: _Values, value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    names = value if isinstance(value, list) else [None]
    if len(names) > BENCHMARKS_MAX or not all(isinstance(name, str) and name for name in names):
        text = f"must be a list of at most {BENCHMARKS_MAX} names of GET /v1/gate/benchmarks"
        values.refuse(BENCHMARKS, text)
        return ()
    return tuple(dict.fromkeys(names))


def _benchmark_items(values: _Values, items: Any) -> int:
    if items is None:
        return BENCHMARK_ITEMS_USUAL
    is_whole = isinstance(items, int) and not isinstance(items, bool)
    if is_whole and ITEMS_MIN <= items <= ITEMS_MAX:
        return int(items)
    text = f"must be a whole number from {ITEMS_MIN} to {ITEMS_MAX}; it is {repr_short(items)}"
    values.refuse(BENCHMARK_ITEMS, text)
    return BENCHMARK_ITEMS_USUAL


def _measured_rows(values: _Values, own: Mapping[str, Any]) -> int:
    rows = own.get("measured_rows")
    if own.get("measures") is None:
        if rows is not None:
            values.refuse(MEASURED_ROWS, f"needs measures: name some in {MEASURES}")
        return 0
    if rows is None:
        return MEASURED_ROWS_USUAL
    is_whole = isinstance(rows, int) and not isinstance(rows, bool)
    if is_whole and MEASURED_ROWS_MIN <= rows <= MEASURED_ROWS_MAX:
        return int(rows)
    text = f"must be a whole number from {MEASURED_ROWS_MIN} to {MEASURED_ROWS_MAX}"
    values.refuse(MEASURED_ROWS, f"{text}; it is {repr_short(rows)}")
    return 0


def _collect(values: _Values, group: str, name: str, value: Any) -> None:
    path = f"{group}.{name}"
    names = GROUPS.get(group)
    target = values.own if name in OWN.get(group, ()) else values.hyper
    if names is not None and name not in names:
        values.refuse(path, f"unknown; {group} takes {', '.join(names)}")
    elif name in values.paths and target[name] != value:
        values.refuse(path, f"also given as {values.paths[name]}; keep one")
    else:
        target[name], values.paths[name] = value, path


def _slots(values: _Values, value: Any) -> int:
    if value is None:
        return 1
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= RANKS_MAX:
        return value
    text = f"must be a whole number from 1 to {RANKS_MAX}; it is {repr_short(value)}"
    values.refuse(SLOTS, text)
    return 1


def _prompts(values: _Values, value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not 0 < len(value) <= PROMPTS_MAX:
        values.refuse(PROMPTS, f"must be a list of 1 to {PROMPTS_MAX} texts")
        return ()
    for number, prompt in enumerate(value):
        if not isinstance(prompt, str) or not prompt.strip():
            values.refuse(f"{PROMPTS}.{number}", "must be a text, and not empty")
        elif len(prompt) > PROMPT_CHARACTERS_MAX:
            text = f"has {len(prompt)} characters; at most {PROMPT_CHARACTERS_MAX} are answered"
            values.refuse(f"{PROMPTS}.{number}", text)
    return tuple(value)


def _mixture(values: _Values, value: Any) -> tuple[RequestedFile, ...]:
    files, problems = requested_mixture(value)
    for param, message in problems:
        values.refuse(param, message)
    return files


def _length_policy(values: _Values, value: Any) -> LengthPolicy:
    for policy in LENGTH_POLICIES:
        if value == policy:
            return policy
    if value is not None:
        values.refuse(LENGTH_POLICY, f"must be one of {', '.join(LENGTH_POLICIES)}")
    return "reject"


def _share_ppm(values: _Values, value: Any, path: str, most: float) -> int | None:
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and 0 <= value <= most:
        return round(float(value) * PPM)
    values.refuse(path, f"must be a number from 0 to {most}; it is {repr_short(value)}")
    return None
