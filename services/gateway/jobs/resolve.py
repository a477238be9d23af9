"""Resolves a request to a job specification, or reports all of its problems at once. Pure."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec.structs import replace

from schemas import errors
from schemas.benchmark import Benchmark
from schemas.billing import PriceBook
from schemas.dataset import BaseTokens, RowKind
from schemas.envelope import Sha256
from schemas.gate import GatePolicy
from schemas.integrations import Integration
from schemas.model import Base
from schemas.sealed import Sealed
from schemas.submission import Budget, JobSpec, MixtureFile
from schemas.training import Adaptation, Device, NodeConstraints
from schemas.units import HOUR_MS
from services.gateway.accounts.tables import TenantRow
from services.gateway.files.bodies import check_purpose
from services.gateway.files.tables import FileRow
from services.gateway.jobs.bodies import METHODS, BudgetBody, JobRequest, PlacementBody
from services.gateway.jobs.configuration import configuration_of
from services.gateway.jobs.integrations import FIELD as INTEGRATIONS
from services.gateway.jobs.integrations import repeated_kind
from services.gateway.jobs.mixtures import mixture_file
from services.gateway.jobs.node_choice import NodeChoice, NodeKind, choose_nodes
from services.gateway.jobs.requested import (
    BENCHMARKS,
    GRADER,
    LENGTH_POLICY,
    SLOTS,
    RequestedSettings,
    RequestProblem,
    requested_settings,
)
from services.gateway.jobs.starts import (
    KEPT,
    KnownStart,
    hyper_with_start,
    start_problems,
    with_start,
)
from services.gateway.models.names import model_id, unknown_model
from services.gateway.web.bodies import Body
from services.gateway.web.errors import FORBIDDEN, UNSUPPORTED, ApiError, invalid, refused
from services.gateway.web.wording import file_words, parameter_words
from tunery.gate.looks import planned_looks
from tunery.plan import hyperparameters
from tunery.plan.fitting import PLANNED, fitted
from tunery.plan.memory import memory_bytes
from tunery.plan.methods import (
    REWARD,
    ROW_WORDS,
    can_learn,
    methods_of_rows,
    rows_of_dialect,
)
from tunery.plan.micro_batches import shared_among
from tunery.plan.packing import mixed
from tunery.plan.price import lane_price

POOL: Final = "default"
PLAIN_TEXT: Final = "text"  # a dialect
NO_WANDB: Final = "integrations.wandb"
NO_SERVER: Final = (
    "mlflow needs a server of the tenant: set one with `tunery mlflow set URL` or "
    "PUT /v1/integrations/mlflow"
)
PRICE_BOOK_RETRY_S: Final = 60  # an operator has to install the file
OWNERS: Final[Mapping[Device, str]] = {"cpu": "nodes", "cuda": "accelerators"}  # of memory
# What a job needs less memory with.
LESS: Final[Mapping[Adaptation, str]] = {
    "lora": "Lower max_length or lora.rank, or choose a smaller model.",
    "qlora": "Lower max_length or lora.rank, or choose a smaller model.",
    "full": "Set adaptation to lora, use more slots, or choose a smaller model.",
}


@dataclass(frozen=True)
class Facts:
    """Everything that a request is resolved against. None: there is no such row or price book.

    allowed_models: the base models that the caller's key may train, None: all. held_out: the
    validation file. nodes: all that the pool knows. book: of the tenant's price version. job_id,
    seed: drawn for this job. suffix, metadata, prompts, grader, measures: sealed for the tenant.
    suffix_hmac: equal for equal suffixes of a tenant. sealed_suffix: as the model's name has it on
    the log. start: where `model` names an own version or checkpoint. mixture: the files that its
    mixture names, by these names. score_problem: why models of its grader are not asked here; None:
    they are, or there are none. benchmarks: all that there are, by name. policy: of the gate, for
    this base model. integrations: sealed for the tenant. has_tracking_server: the tenant has set
    one. has_wandb: W&B's package is installed here.
    """

    tenant_id: str
    tenant: TenantRow | None
    allowed_models: frozenset[str] | None
    base: Base | None
    training: FileRow | None
    held_out: FileRow | None
    nodes: Sequence[NodeKind]
    book: PriceBook | None
    job_id: str
    seed: int
    suffix: Sealed | None
    metadata: Sealed | None
    suffix_hmac: str
    sealed_suffix: str = ""
    prompts: Sealed | None = None
    start: KnownStart | None = None
    grader: Sealed | None = None
    measures: Sealed | None = None
    mixture: Mapping[str, FileRow | None] = field(default_factory=dict)
    score_problem: str | None = None
    benchmarks: Mapping[str, Benchmark] = field(default_factory=dict)
    policy: GatePolicy = field(default_factory=GatePolicy)
    integrations: tuple[Integration, ...] = ()
    has_tracking_server: bool = False
    has_wandb: bool = False

    def of_job(self, job_id: str) -> "Facts":
        """The same facts for another job."""
        return dataclasses.replace(self, job_id=job_id)


@dataclass(frozen=True)
class Resolved:
    """The job as it is written on the log: without "auto", with an id for each input.

    `tokens`: of the training file under this base; None while the file is being validated.
    `memory_max`: of the nodes that it may have the largest; None: there is none yet.
    """

    spec: JobSpec
    tokens: BaseTokens | None
    memory_max: int | None = None


def resolve(request: JobRequest, facts: Facts, *, has_file: bool = True) -> Resolved:
    """Resolve a request. Raises ApiError for the request itself, or for what it refers to.

    has_file: False where its training file is not uploaded yet; the job then names none.
    """
    tenant = _known_tenant(facts)
    _check_allowed(request, facts)
    settings, problems = _all_checked(request, facts)
    base, files, mixture = _inputs(request, facts, settings, problems, has_file=has_file)
    training, held_out = files.get("training_file"), files.get("validation_file")
    tokens = None if training is None else _tokens(training, base, "training_file")
    all_tokens = None if tokens is None else mixed(tokens, mixture)
    choice = _choice_of_nodes(request, facts, settings)
    benchmarks = asked_benchmarks(
        settings.method, settings.benchmarks, facts.benchmarks, facts.policy
    )
    fraction_ppm = 0 if held_out is not None else settings.validation_fraction_ppm
    seed = facts.seed if request.seed is None else request.seed
    hyper, auto = hyperparameters.resolve(
        hyper_with_start(settings.hyper, facts.start),
        base,
        all_tokens,
        seed,
        choice.device,
        fraction_ppm,
    )
    if facts.start is not None:
        hyper = with_start(hyper, facts.start)
        auto = tuple(name for name in auto if name not in KEPT)
    spec = JobSpec(
        base=base,
        training_file="" if training is None else training.id,
        validation_file=None if held_out is None else held_out.id,
        hyper=hyper,
        auto=auto,
        length_policy=settings.length_policy,
        validation_fraction_ppm=fraction_ppm,
        slots=settings.slots,
        pool=POOL,
        suffix=facts.suffix,
        metadata=facts.metadata,
        series=f"{base.base_id}/{facts.suffix_hmac}",
        model_id=model_id(
            request.model if request.model in base.aliases else base.base_id,
            tenant.id,
            facts.sealed_suffix,
            facts.job_id,
        ),
        price=lane_price(installed_book(facts.book, tenant), tenant.plan),
        device=choice.device,
        budget=budget_of(request.budget),
        drop_max_ppm=settings.drop_max_ppm,
        constraints=_constraints(request.placement),
        ignored=_ignored(facts),
        prompts=facts.prompts if settings.prompts else None,
        grader=facts.grader if settings.grader else None,
        measures=facts.measures if settings.measures else None,
        measured_rows=settings.measured_rows,
        start=None if facts.start is None else facts.start.start,
        same_rows=held_out is not None
        and held_out.sha256 in {file.sha256 for file in (training, *mixture) if file is not None},
        mixture=mixture,
        benchmarks=benchmarks,
        benchmark_items=settings.benchmark_items if benchmarks else 0,
        looks_ppm=looks_of(benchmarks, settings.benchmark_items, facts.policy),
        integrations=facts.integrations,
    )
    configuration = _configuration(spec, (training, held_out), request, settings)
    spec = _fitted(spec, all_tokens, choice, settings)
    return Resolved(replace(spec, configuration=configuration), tokens, _largest(choice))


def _largest(choice: NodeChoice) -> int | None:
    """Memory of the largest node; None: there is none yet."""
    return max((node.memory_bytes for node in choice.of_device), default=None)


def _configuration(
    spec: JobSpec,
    files: Iterable[FileRow | None],
    request: JobRequest,
    settings: RequestedSettings,
) -> Sha256:
    return configuration_of(
        spec,
        [file.sha256 for file in files if file is not None],
        is_seed_drawn=request.seed is None,
        grader=settings.grader,
        measures=settings.measures,
    )


def canonical(request: Body) -> bytes:
    """Canonical bytes of a request: equal for any order of fields and any white space."""
    return msgspec.json.encode(request.model_dump(mode="json"), order="sorted")


# --- the request's own problems -------------------------------------------------------------------


def _known_tenant(facts: Facts) -> TenantRow:
    if facts.tenant is None:
        message = f"Tenant {facts.tenant_id!r} does not exist. Create it with POST /v1/tenants."
        raise ApiError(404, errors.NOT_FOUND, message)
    return facts.tenant


def _check_allowed(request: JobRequest, facts: Facts) -> None:
    allowed = facts.allowed_models
    names = {request.model} if facts.base is None else {request.model, facts.base.base_id}
    if allowed is not None and names.isdisjoint(allowed):
        message = f"This key may train {', '.join(sorted(allowed))}, not {request.model!r}."
        raise ApiError(403, FORBIDDEN, message, "model")


def checked_settings(
    request: JobRequest, base: Base | None
) -> tuple[RequestedSettings, list[RequestProblem]]:
    """The settings of a request, and everything that is wrong with them.

    base: None where it is not known; then ranges are those for any base model.
    """
    problems = _method_problems(request)
    settings, more = requested_settings(request)
    problems += more
    problems += [
        RequestProblem(
            settings.paths.get(problem.param, problem.param), parameter_words(problem.reason)
        )
        for problem in hyperparameters.problems(settings.hyper, base)
    ]
    return settings, problems


def asked_benchmarks(
    method: str, named: Iterable[str], known: Mapping[str, Benchmark], policy: GatePolicy
) -> tuple[Benchmark, ...]:
    """The benchmarks of the policy, then those that the job names; a reward model answers none."""
    if method == REWARD:
        return ()
    names = dict.fromkeys((*policy.benchmarks, *named))
    return tuple(known[name] for name in names if name in known)


def looks_of(
    benchmarks: Iterable[Benchmark], items_max: int, policy: GatePolicy
) -> tuple[int, ...]:
    """The looks that an evaluation plans; prompts that should be refused are asked at once."""
    sizes = [min(asked.items, items_max) for asked in benchmarks if asked.kind != "safety"]
    return planned_looks(policy.looks_ppm, sizes)


def _all_checked(
    request: JobRequest, facts: Facts
) -> tuple[RequestedSettings, list[RequestProblem]]:
    """As `checked_settings`, with what else is known of the request."""
    settings, problems = checked_settings(request, facts.base)
    problems += [
        RequestProblem(BENCHMARKS, f"there is no benchmark {name!r}; see GET /v1/gate/benchmarks")
        for name in settings.benchmarks
        if name not in facts.benchmarks
    ]
    if facts.score_problem is not None:
        problems.append(RequestProblem(GRADER, facts.score_problem))
    problems += _integration_problems(request, facts)
    if facts.start is not None and not problems:
        problems = start_problems(facts.start, settings)
    return settings, problems


def _choice_of_nodes(request: JobRequest, facts: Facts, settings: RequestedSettings) -> NodeChoice:
    """The nodes that the job may have. Raises ApiError where the pool's do not fit."""
    choice = choose_nodes(
        request.placement or PlacementBody(),
        facts.nodes,
        asks_models=settings.asks_models,
    )
    problem = choice.problem or _slots_problem(settings, choice)
    if problem is not None:
        raise _refusal([problem])
    return choice


def _slots_problem(settings: RequestedSettings, choice: NodeChoice) -> RequestProblem | None:
    """Why the job cannot have so many slots; None: it can.

    More would be billed and train no faster.
    """
    slots, most = settings.slots, choice.most_slots
    if slots == 1:
        if settings.hyper.get("shard_weights") is not True:
            return None
        text = "shard_weights deals weights to several slots; set slots to 2 or more"
    elif settings.asks_models:
        text = "a training whose grader asks models keeps their answers in one slot; set it to 1"
    elif 0 < most < slots:
        text = f"the nodes that the job may have together have {most} for it"
    else:
        return None
    return RequestProblem(SLOTS, f"{text}; it is {slots}")


def _inputs(
    request: JobRequest,
    facts: Facts,
    settings: RequestedSettings,
    problems: list[RequestProblem],
    *,
    has_file: bool,
) -> tuple[Base, Mapping[str, FileRow], tuple[MixtureFile, ...]]:
    """The base model, the files of a job by their fields, and its further files.

    Raises ApiError with every problem of the request; `param` names the first. What is wrong with
    one input keeps its own status and code where it is the only problem.
    """
    unknown = [] if facts.base is not None else [unknown_model(request.model)]
    unusable: list[ApiError] = []
    files: dict[str, FileRow] = {}
    references: tuple[tuple[str, FileRow | None, str | None], ...] = (
        ("training_file", facts.training, request.training_file if has_file else None),
        ("validation_file", facts.held_out, request.validation_file),
    )
    for role, row, reference in references:
        if reference is None:
            continue
        try:
            files[role] = _usable_file(row, reference, role, settings)
        except ApiError as refusal:
            unusable.append(refusal)
    mixture, refused_files = _mixture(facts, settings, files)
    unusable += refused_files
    if len(unknown) + len(unusable) == 1 and not problems:
        raise (*unknown, *unusable)[0]
    if facts.base is None or unusable or problems:
        raise _refusal([*_problems(unknown), *problems, *_problems(unusable)])
    return facts.base, files, mixture


def _mixture(
    facts: Facts, settings: RequestedSettings, files: Mapping[str, FileRow]
) -> tuple[tuple[MixtureFile, ...], list[ApiError]]:
    """The further files of a job, and what is wrong with those that it cannot use.

    files: the others, by their fields
    """
    used = {file.id: role for role, file in files.items()}
    mixture: list[MixtureFile] = []
    refusals: list[ApiError] = []
    for asked in settings.mixture:
        row = facts.mixture.get(asked.reference)
        try:
            file = _usable_file(row, asked.reference, asked.param, settings)
            if facts.base is not None:
                tokens = _tokens(file, facts.base, asked.param)
                mixture.append(mixture_file(file, tokens, asked, used))
            used[file.id] = asked.param
        except ApiError as refusal:
            refusals.append(refusal)
    return tuple(mixture), refusals


def _problems(refusals: Sequence[ApiError]) -> list[RequestProblem]:
    return [RequestProblem(refusal.param or "body", refusal.message) for refusal in refusals]


def _refusal(problems: list[RequestProblem]) -> ApiError:
    """One error that lists every problem."""
    text = "; ".join(f"{problem.param}: {problem.message}" for problem in problems)
    lead = f"{len(problems)} problems: " if len(problems) > 1 else ""
    first = problems[0].param
    return invalid(lead + text, first, UNSUPPORTED if first == "method.type" else "invalid_value")


def _method_problems(request: JobRequest) -> list[RequestProblem]:
    method = request.method
    if method is None:
        return []
    if method.type not in METHODS:
        text = f"{method.type!r} is not supported here; supported: {', '.join(METHODS)}"
        return [RequestProblem("method.type", text)]
    others = [
        name
        for name, details in method
        if name not in ("type", method.type) and details is not None
    ]
    return [
        RequestProblem(f"method.{name}", f"does not belong to the method {method.type!r}")
        for name in others
    ]


def _integration_problems(request: JobRequest, facts: Facts) -> list[RequestProblem]:
    bodies = request.integrations or []
    if (repeated := repeated_kind(bodies)) is not None:
        return [RequestProblem(INTEGRATIONS, f"has the type {repeated!r} twice")]
    if not facts.has_tracking_server and any(body.type == "mlflow" for body in bodies):
        return [RequestProblem(INTEGRATIONS, NO_SERVER)]
    return []


def _ignored(facts: Facts) -> tuple[str, ...]:
    """Parts of the request that do nothing here: scripts for OpenAI are not refused for them."""
    asked = {integration.kind for integration in facts.integrations}
    return (NO_WANDB,) if "wandb" in asked and not facts.has_wandb else ()


# --- what the request refers to -------------------------------------------------------------------


def _usable_file(
    file: FileRow | None, reference: str, role: str, settings: RequestedSettings
) -> FileRow:
    """The file if a job may use it. Raises ApiError.

    A file that is still being validated is accepted: the job waits for its validation.
    """
    if file is None:
        raise ApiError(404, errors.NOT_FOUND, f"No such File object: {reference}", role)
    check_purpose(reference, file.purpose, role)
    validation = file.validation
    if file.status == "error":
        count = (
            ""
            if validation is None
            else f" with {validation.errors} error{'' if validation.errors == 1 else 's'}"
        )
        failure = None if validation is None else validation.failure
        detail = "" if failure is None else f"{file_words(failure.reason)} "
        raise refused(
            errors.FILE_REJECTED if failure is None else failure.code,
            f"{reference} was rejected{count}. {detail}GET /v1/files/{reference}/validation lists "
            "them; correct the file and upload it again.",
            role,
        )
    dialect = None if validation is None else validation.dialect
    rows = None if dialect is None else rows_of_dialect(dialect)
    if rows is not None and settings.rows is not None and not can_learn(settings.rows, rows):
        raise invalid(_other_rows(file, rows, settings), role, "invalid_value")
    if settings.length_policy == "split" and dialect not in (None, PLAIN_TEXT):
        raise invalid(
            f"{LENGTH_POLICY}: only plain text can be split, and {file.id} is {dialect}; use "
            'reject or truncate, or upload rows of {"text": …}.',
            LENGTH_POLICY,
            "invalid_value",
        )
    return file


def _other_rows(file: FileRow, rows: RowKind, settings: RequestedSettings) -> str:
    """Why a method does not learn from a file, and what would."""
    method = settings.method
    fitting = " or ".join(f'"{name}"' for name in methods_of_rows(rows))
    advice = f"Set method.type to {fitting}, or" if fitting else "No method learns from it yet:"
    wanted = (
        f"; the method {method} learns from {ROW_WORDS[settings.rows]}" if settings.rows else ""
    )
    return f"each row of {file.id} is {ROW_WORDS[rows]}{wanted}. {advice} upload another file."


def _tokens(file: FileRow, base: Base, role: str) -> BaseTokens | None:
    """Exact token counts under this base model; None before validation. Raises ApiError."""
    if file.validation is None:
        return None
    for counted in file.validation.tokens:
        if (counted.base_id, counted.base_sha256) == (base.base_id, base.sha256):
            return counted
    raise invalid(
        f"{file.id} was checked before {base.base_id} was added. Upload it again.",
        role,
        errors.FILE_REJECTED,
    )


def _fitted(
    spec: JobSpec, tokens: BaseTokens | None, choice: NodeChoice, settings: RequestedSettings
) -> JobSpec:
    """The same steps in micro-batches that a slot of some node it may have has the memory for, and
    of which every slot has some. What the request does not set for that, the plan does.

    Raises ApiError where no node has it even for one row at a time: the job would wait for ever;
    and where a step has fewer rows than the job has slots.
    """
    base, hyper, slots = spec.base, spec.hyper, spec.slots
    suitable, device = choice.of_device, choice.device
    asked = {name for name in PLANNED if settings.hyper.get(name) not in (None, "auto")}
    smaller = hyper
    if suitable:
        slot_bytes = max(node.slot_bytes for node in suitable)
        most_bytes = max(node.memory_bytes for node in suitable)
        smaller = fitted(base, hyper, device, tokens, slot_bytes, asked, ranks=slots)
        on_node = min(slots, max(node.slots for node in suitable))
        sharing = on_node if device == "cpu" else 1  # each accelerator has memory of its own
        needed = sharing * memory_bytes(base, smaller, device, tokens, slots)
        if needed > most_bytes:
            each = "" if on_node == 1 else f" on each of {on_node} slots"
            text = (
                f"one row at a time{each} needs about {needed / 1e9:.1f} GB of memory, and of the "
                f"{OWNERS[device]} that the job may have the largest has {most_bytes / 1e9:.1f} "
                f"GB. {LESS[hyper.adaptation]}"
            )
            raise invalid(text, "training.max_length")
    shared = shared_among(smaller, slots)
    if shared is None:
        rows = hyper.batch_size
        text = (
            f"a step has {rows} packed row{'' if rows == 1 else 's'} (batch_size), which "
            f"{slots} slots cannot share. Set batch_size to {slots} or more, or use fewer slots."
        )
        raise invalid(text, SLOTS)
    chosen = (name for name in PLANNED if getattr(shared, name) != getattr(hyper, name))
    return replace(spec, hyper=shared, auto=(*spec.auto, *chosen))


def installed_book(book: PriceBook | None, tenant: TenantRow) -> PriceBook:
    """The price book of a tenant. Raises ApiError 503 where it is not on the log yet."""
    if book is None:
        message = (
            f"The price book {tenant.price_version!r} of this tenant is not on the log yet. "
            "Tell the operator: put its file into billing's folder of price books, and start "
            "billing again."
        )
        headers = {"retry-after": str(PRICE_BOOK_RETRY_S)}
        raise ApiError(503, "price_book_missing", message, headers=headers)
    return book


def budget_of(asked: BudgetBody | None) -> Budget | None:
    """A budget as it is written on the log."""
    if asked is None:
        return None
    hours = asked.max_gpu_hours
    return Budget(
        max_gpu_ms=None if hours is None else round(hours * HOUR_MS),
        max_amount_micro=asked.max_amount_micro,
    )


def _constraints(asked: PlacementBody | None) -> NodeConstraints | None:
    """Which nodes the job may run on; None: any without taints."""
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
