"""Collects the settings of a request from the five groups that may contain them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, get_args

from schemas.dataset import LengthPolicy, ReasoningPolicy, RowKind
from schemas.submission import Budget, JobSettings
from schemas.training import NodeConstraints
from schemas.units import HOUR_MS
from services.gateway.jobs.domain.bodies import METHODS, BudgetBody, JobRequest, PlacementBody
from services.gateway.jobs.domain.mixtures import RequestedFile, requested_mixture
from services.gateway.jobs.domain.own_chats import requested_chat
from services.gateway.wording import parameter_words
from tunery.benchmarks.task import ITEMS_MAX, ITEMS_MIN
from tunery.graders.grader import GraderRefused, asks_models, parse
from tunery.measures.declaration import parse_measures
from tunery.plan.hyperparameters import SUPERVISED, is_set, value_problem
from tunery.plan.knobs import ADAPTER_KNOBS, Knob
from tunery.plan.methods import REWARD, ROWS_OF_METHOD
from tunery.plan.micro_batches import RANKS_MAX
from tunery.work.own_chat import OwnChat

PROMPTS: Final = "eval.prompts"
SLOTS: Final = "training.slots"
MEASURES: Final = "eval.measures"
BENCHMARKS: Final = "eval.benchmarks"
BENCHMARKS_MAX: Final = 8
MEASURED_ROWS_MAX: Final = 256
# Settings besides the hyper-parameters that are no texts, by their names in a request.
SETTINGS: Final[Mapping[str, Knob]] = {
    "slots": Knob(
        field="slots",
        kind="whole",
        low=1,
        high=RANKS_MAX,
        default=1,
        source="ranks that share each step",
    ),
    "length_policy": Knob(
        field="length_policy",
        kind="choice",
        choices=get_args(LengthPolicy),
        default="reject",
        source="reject: nothing is cut without being asked",
    ),
    "reasoning": Knob(
        field="reasoning",
        kind="choice",
        choices=get_args(ReasoningPolicy),
        default="keep",
        source="keep: rows train as they are, or are refused",
    ),
    "validation_fraction": Knob(
        field="validation_fraction_ppm",
        kind="number",
        low=0,
        high=0.5,
        default=0.1,
        source="of the rows; 0 where a validation file is named",
    ),
    "drop_max": Knob(
        field="drop_max_ppm",
        kind="number",
        low=0,
        high=0.5,
        default=None,
        source="loss of accuracy that the gate allows; the policy's",
    ),
    "measured_rows": Knob(
        field="measured_rows",
        kind="whole",
        low=20,  # fewer decide nothing
        high=MEASURED_ROWS_MAX,
        default=64,
        source="rows that are answered for eval.measures",
    ),
    "benchmark_items": Knob(
        field="benchmark_items",
        kind="whole",
        low=ITEMS_MIN,
        high=ITEMS_MAX,
        default=1_000,
        source="of each benchmark; a drop of 2 points needs about 2,000",
    ),
}
PROMPTS_MAX: Final = 8
PROMPT_CHARACTERS_MAX: Final = 1_000
# settings of a group that are not passed to the trainer
OWN: Final[Mapping[str, tuple[str, ...]]] = {
    "training": (
        "slots",
        "length_policy",
        "reasoning",
        "chat_template",
        "eot_tokens",
        "validation_fraction",
        "mixture",
    ),
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
REASONING: Final = "training.reasoning"
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
    hyper: Mapping[str, Any]  # hyper-parameters by name, numbers or "auto"
    paths: Mapping[str, str]  # name → the field that it came from
    own: JobSettings  # all that the log has of `JobSettings`, except texts
    prompts: tuple[str, ...]  # what base and adapter answer; none for the bundled ones
    # grader of answers; None: the method grades none
    grader: Mapping[str, Any] | None = None
    # what answers to validation rows are measured by; empty: nothing is measured
    measures: tuple[Any, ...] = ()
    mixture: tuple[RequestedFile, ...] = ()  # further files it trains on
    # names of those that both sides answer besides those of the policy
    benchmarks: tuple[str, ...] = ()
    chat: OwnChat | None = None  # None: the base model's template and end tokens

    @property
    def method(self) -> str:
        return str(self.hyper.get("method", SUPERVISED))

    @property
    def asks_models(self) -> bool:
        return self.grader is not None and asks_models(parse(self.grader))

    @property
    def rows(self) -> RowKind | None:
        """Kind of rows that the method learns from; None: not known."""
        return next((kind for name, kind in ROWS_OF_METHOD.items() if name == self.method), None)


@dataclass(frozen=True)
class RequestProblem:
    """A problem with a field of a request: its name, and what to do."""

    param: str
    message: str


@dataclass
class _Values:
    """Values by name while they are collected."""

    hyper: dict[str, Any] = field(default_factory=dict)
    own: dict[str, Any] = field(default_factory=dict)  # values that are not passed to the trainer
    paths: dict[str, str] = field(default_factory=dict)
    problems: list[RequestProblem] = field(default_factory=list)

    def refuse(self, param: str, message: str) -> None:
        self.problems.append(RequestProblem(param, message))


def requested_settings(request: JobRequest) -> tuple[RequestedSettings, list[RequestProblem]]:
    """Return the settings of a request, a default for each that has a problem, and all problems."""
    values = _Values()
    for group, items in _groups(request):
        for name, value in items.items():
            _collect(values, group, name, value)
    # among the hyper-parameters, because most follow it
    if request.method is not None and request.method.type != SUPERVISED:
        values.hyper["method"] = request.method.type
    _openais(values)
    own, paths = values.own, values.paths
    settings = RequestedSettings(
        hyper=values.hyper,
        paths=paths,
        own=_own(values, request),
        prompts=_prompts(values, own.get("prompts")),
        grader=_grader(values, request),
        measures=_measures(values, request, own.get("measures")),
        mixture=_mixture(values, own.get("mixture")),
        benchmarks=_benchmarks(values, own.get("benchmarks")),
        chat=_chat(values, own.get("chat_template"), own.get("eot_tokens")),
    )
    _refuse_of_reward(values)
    if request.validation_file is None and not settings.own.validation_fraction_ppm:
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
    """Refuse what does not go together with a reward model, which writes no answers."""
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
    """Check and return the measures of answers to validation rows."""
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


def _chat(values: _Values, template: Any, eot_tokens: Any) -> OwnChat | None:
    chat, problems = requested_chat(template, eot_tokens)
    for param, message in problems:
        values.refuse(param, message)
    return chat


def _own(values: _Values, request: JobRequest) -> JobSettings:
    """The settings that are no texts, as the log has them; one with a problem has its default."""
    if values.own.get("measures") is None and values.own.get("measured_rows") is not None:
        text = f"needs measures: name some in {MEASURES}"
        values.refuse(values.paths["measured_rows"], text)
    read: dict[str, Any] = {}
    for name, knob in SETTINGS.items():
        value = values.own.get(name)
        if (reason := value_problem(name, knob, value)) is not None:
            values.refuse(values.paths[name], parameter_words(reason))
        if reason is not None or not is_set(value):
            value = knob.default
        read[knob.field] = None if value is None else knob.recorded(value)
    if values.own.get("measures") is None:
        read["measured_rows"] = 0
    budget, placement = budget_of(request.budget), constraints_of(request.placement)
    return JobSettings(**read, budget=budget, constraints=placement)


def shown_settings(settings: JobSettings, group: str) -> dict[str, Any]:
    """The settings of a group as a request has them; None: it is not set."""
    shown = {}
    for name in OWN[group]:
        if (knob := SETTINGS.get(name)) is not None:
            value = getattr(settings, knob.field)
            is_number = knob.kind in ("whole", "number")
            unset = value is None or (is_number and value < knob.recorded(knob.low))
            shown[name] = None if unset else knob.shown(value)
    return shown


def budget_of(asked: BudgetBody | None) -> Budget | None:
    """A budget as it is written on the log."""
    if asked is None:
        return None
    hours = asked.max_gpu_hours
    return Budget(
        max_gpu_ms=None if hours is None else round(hours * HOUR_MS),
        max_amount_micro=asked.max_amount_micro,
    )


def constraints_of(asked: PlacementBody | None) -> NodeConstraints | None:
    """Return the nodes that the job may run on; None: any without taints."""
    if asked is None or not asked.model_fields_set:
        return None
    return NodeConstraints(
        accelerator=asked.accelerator or "",
        spot=asked.spot,
        finish_by=None if asked.finish_by is None else 1_000 * asked.finish_by,
        tolerations=tuple(sorted({*asked.tolerations})),
        domain=asked.domain or "",
        domain_wait_ms=(
            None if asked.domain_wait_minutes is None else 60_000 * asked.domain_wait_minutes
        ),
    )


def shown_placement(constraints: NodeConstraints | None) -> dict[str, Any]:
    """The nodes that a job may run on as a request has them."""
    asked = constraints or NodeConstraints()
    wait_ms = asked.domain_wait_ms
    return {
        "accelerator": asked.accelerator or None,
        "spot": asked.spot,
        "finish_by": None if asked.finish_by is None else asked.finish_by // 1_000,
        "tolerations": list(asked.tolerations),
        "domain": asked.domain or None,
        "domain_wait_minutes": None if wait_ms is None else wait_ms // 60_000,
    }


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
