"""Resolves a request to a job specification, or reports all of its problems at once. Pure."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec.structs import asdict, replace

from schemas import errors
from schemas.benchmark import Benchmark
from schemas.billing import PriceBook
from schemas.dataset import BaseTokens, RowKind
from schemas.envelope import Sha256
from schemas.gate import GatePolicy
from schemas.integrations import Integration
from schemas.model import Base
from schemas.submission import JobSettings, JobSpec, MixtureFile
from schemas.training import Adaptation, Device
from services.gateway.files.domain.bodies import check_purpose
from services.gateway.jobs.configuration import configuration_of
from services.gateway.jobs.domain.bodies import METHODS, EstimateRequest, JobRequest, PlacementBody
from services.gateway.jobs.domain.integrations import FIELD as INTEGRATIONS
from services.gateway.jobs.domain.integrations import repeated_kind
from services.gateway.jobs.domain.mixtures import mixture_file
from services.gateway.jobs.domain.node_choice import NodeChoice, NodeKind, choose_nodes
from services.gateway.jobs.domain.own_chats import CHAT_TEMPLATE
from services.gateway.jobs.domain.requested import (
    BENCHMARKS,
    GRADER,
    LENGTH_POLICY,
    REASONING,
    SLOTS,
    RequestedSettings,
    RequestProblem,
    requested_settings,
)
from services.gateway.jobs.domain.starts import (
    KEPT,
    KnownStart,
    hyper_with_start,
    start_problems,
    with_start,
)
from services.gateway.models.domain.names import model_id, unknown_model
from services.gateway.views.tables.accounts import TenantRow
from services.gateway.views.tables.files import FileRow
from services.gateway.web.domain.bodies import Body
from services.gateway.web.domain.errors import FORBIDDEN, UNSUPPORTED, ApiError, invalid, refused
from services.gateway.wording import file_words, parameter_words
from tunery.gate.looks import planned_looks
from tunery.plan import hyperparameters
from tunery.plan.fitting import PLANNED, fitted
from tunery.plan.memory import memory_bytes
from tunery.plan.methods import REWARD, ROW_WORDS, can_learn, methods_of_rows, rows_of_dialect
from tunery.plan.micro_batches import shared_among
from tunery.plan.packing import mixed
from tunery.plan.price import lane_price

POOL: Final = "default"
PLAIN_TEXT: Final = "text"  # a dialect
ASSUMED_ROW_TOKENS: Final = 512  # of a row, where the file is not known
NO_WANDB: Final = "integrations.wandb"
NO_SERVER: Final = (
    "mlflow needs a server of the tenant: set one with `tunery mlflow set URL` or "
    "PUT /v1/integrations/mlflow"
)
ENDLESS_BYTES: Final = 1 << 62  # of a slot, where no node has joined yet
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
    """Everything that a request is resolved against. None: there is no such row or price book."""

    tenant_id: str
    tenant: TenantRow | None
    # the base models that the caller's key may train, None: all
    allowed_models: frozenset[str] | None
    base: Base | None
    training: FileRow | None
    held_out: FileRow | None  # the validation file
    nodes: Sequence[NodeKind]  # all nodes that the pool knows
    book: PriceBook | None  # price book of the tenant
    job_id: str  # drawn for this job, as its seed
    seed: int
    suffix_hmac: str  # equal for equal suffixes of a tenant
    sealed_suffix: str = ""  # as the model's name has it on the log
    chat_sha256: Sha256 | None = None  # of the chat format in `texts`; None: the base model's
    own_counts: Mapping[str, BaseTokens] = field(default_factory=dict)  # with it, by file ids
    # those of its `JobSettings`, sealed for the tenant
    texts: Mapping[str, Any] = field(default_factory=dict)
    start: KnownStart | None = None  # set where `model` names an own version or checkpoint
    # the files that its mixture names, by these names
    mixture: Mapping[str, FileRow | None] = field(default_factory=dict)
    # why models of its grader are not asked here; None: they are, or there are none
    score_problem: str | None = None
    benchmarks: Mapping[str, Benchmark] = field(default_factory=dict)  # all that there are, by name
    policy: GatePolicy = field(default_factory=GatePolicy)  # policy of the gate for this base model
    integrations: tuple[Integration, ...] = ()  # sealed for the tenant
    has_tracking_server: bool = False  # the tenant has set one
    has_wandb: bool = False  # W&B's package is installed here

    def of_job(self, job_id: str) -> "Facts":
        """Return a copy of these facts for another job."""
        return dataclasses.replace(self, job_id=job_id)


@dataclass(frozen=True)
class Resolved:
    """The job as it is written on the log: without "auto", with an id for each input."""

    spec: JobSpec
    # token counts of the training file under this base; None: the file is being validated
    tokens: BaseTokens | None
    # largest memory of a slot among the nodes that it may have; None: there are none yet
    memory_max: int | None = None


def _assumed(request: JobRequest, base: Base) -> BaseTokens | None:
    """Tokens of a training file that an estimate only knows the size of; None: it knows none."""
    if not isinstance(request, EstimateRequest) or request.training_tokens is None:
        return None
    count = request.training_tokens
    return BaseTokens(
        base_id=base.base_id,
        base_sha256=base.sha256,
        tokens=count,
        trainable_tokens=count // 2,
        longest_row_tokens=min(count, ASSUMED_ROW_TOKENS),
    )


def resolve(request: JobRequest, facts: Facts) -> Resolved:
    """Resolve a request. Raises ApiError for the request itself, or for what it refers to.

    Without a training file, which may be uploaded later, the job names none.
    """
    tenant = _known_tenant(facts)
    _check_allowed(request, facts)
    settings, problems = _all_checked(request, facts)
    base, files, mixture = _inputs(request, facts, settings, problems)
    training, held_out = files.get("training_file"), files.get("validation_file")
    if training is None:
        tokens = _assumed(request, base)
    else:
        tokens = _tokens(training, base, "training_file", settings.own, facts)
    if held_out is not None:
        _check_reasoning(held_out, base, settings.own, facts)
    all_tokens = None if tokens is None else mixed(tokens, mixture)
    choice = _choice_of_nodes(request, facts, settings)
    benchmarks = asked_benchmarks(
        settings.method, settings.benchmarks, facts.benchmarks, facts.policy
    )
    fraction_ppm = 0 if held_out is not None else settings.own.validation_fraction_ppm
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
    own = replace(
        settings.own,
        **facts.texts,
        validation_fraction_ppm=fraction_ppm,
        benchmark_items=settings.own.benchmark_items if benchmarks else 0,
    )
    spec = JobSpec(
        **asdict(own),
        base=base,
        training_file="" if training is None else training.id,
        validation_file=None if held_out is None else held_out.id,
        hyper=hyper,
        auto=auto,
        pool=POOL,
        series=f"{base.base_id}/{facts.suffix_hmac}",
        model_id=model_id(
            request.model if request.model in base.aliases else base.base_id,
            tenant.id,
            facts.sealed_suffix,
            facts.job_id,
        ),
        price=lane_price(installed_book(facts.book, tenant), tenant.plan),
        device=choice.device,
        ignored=_ignored(facts),
        start=None if facts.start is None else facts.start.start,
        same_rows=held_out is not None
        and held_out.sha256 in {file.sha256 for file in (training, *mixture) if file is not None},
        mixture=mixture,
        benchmarks=benchmarks,
        looks_ppm=looks_of(benchmarks, settings.own.benchmark_items, facts.policy),
        integrations=facts.integrations,
        chat_sha256=facts.chat_sha256,
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
        for problem in hyperparameters.problems(settings.hyper, base, settings.own.slots)
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
    """Check the settings as `checked_settings` does, then against benchmarks, grader, integrations
    and start.
    """
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
    """Why the job cannot have this number of slots; None: it can.

    More would be billed and train no faster.
    """
    slots, most = settings.own.slots, choice.most_slots
    if slots == 1:
        return None
    if settings.asks_models:
        text = "a training whose grader asks models keeps their answers in one slot; set it to 1"
    elif 0 < most < slots:
        text = f"the nodes that the job may have together have {most} for it"
        if not any(node.fabric for node in choice.of_device):
            reason = "several are combined only over a trusted network (TUNERY_NODE_FABRIC)"
            text = f"{text}, since {reason}; set it to {most}"
    else:
        return None
    return RequestProblem(SLOTS, f"{text}; it is {slots}")


def _inputs(
    request: JobRequest,
    facts: Facts,
    settings: RequestedSettings,
    problems: list[RequestProblem],
) -> tuple[Base, Mapping[str, FileRow], tuple[MixtureFile, ...]]:
    """The base model, the files of a job by their fields, and its further files.

    Raises ApiError with every problem of the request; `param` names the first. What is wrong with
    one input keeps its own status and code where it is the only problem.
    """
    unknown = [] if facts.base is not None else [unknown_model(request.model)]
    unusable: list[ApiError] = []
    files: dict[str, FileRow] = {}
    references: tuple[tuple[str, FileRow | None, str | None], ...] = (
        ("training_file", facts.training, request.training_file),
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
                tokens = _tokens(file, facts.base, asked.param, settings.own, facts)
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
    if settings.own.length_policy == "split" and dialect not in (None, PLAIN_TEXT):
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


def _counted(file: FileRow, base: Base, facts: Facts) -> BaseTokens | None:
    if facts.chat_sha256 is not None:
        return facts.own_counts.get(file.id)
    counts = () if file.validation is None else file.validation.tokens
    known = (base.base_id, base.sha256)
    return next((c for c in counts if (c.base_id, c.base_sha256) == known), None)


def _check_reasoning(file: FileRow, base: Base, own: JobSettings, facts: Facts) -> None:
    """Refuse a file whose reasoning the base model's chat template leaves out. Raises ApiError."""
    counted = _counted(file, base, facts)
    if counted is not None and counted.reasoning == "drop" and own.reasoning == "keep":
        text = (
            f"The chat template of {base.base_id} leaves out reasoning in {file.id} that is to be "
            f"learned (template_drops_text). Set {REASONING} to drop, which trains the answers "
            f"without it, give a template that shows it as {CHAT_TEMPLATE}, or choose a base model "
            "that was added with one."
        )
        raise invalid(text, REASONING, "invalid_value")


def _tokens(
    file: FileRow, base: Base, role: str, own: JobSettings, facts: Facts
) -> BaseTokens | None:
    """Exact token counts under this base model; None before validation. Raises ApiError."""
    _check_reasoning(file, base, own, facts)
    counted = _counted(file, base, facts)
    if counted is not None or file.validation is None or facts.chat_sha256 is not None:
        return counted
    raise invalid(
        f"{file.id} was checked before {base.base_id} was added. Upload it again.",
        role,
        errors.FILE_REJECTED,
    )


def _fitted(
    spec: JobSpec, tokens: BaseTokens | None, choice: NodeChoice, settings: RequestedSettings
) -> JobSpec:
    """Plan the engine and micro-batches so that a step fits a slot of some node and every slot has
    rows. Settings of the request are kept; the plan chooses the rest.

    Raises ApiError if no node has memory for one row at a time (the job would wait for ever), or a
    step has fewer rows than the job has slots.
    """
    base, hyper, slots = spec.base, spec.hyper, spec.slots
    suitable, device = choice.of_device, choice.device
    asked = {n for n in (*PLANNED, "engine") if settings.hyper.get(n) not in (None, "auto")}
    slot_bytes = max((node.slot_bytes for node in suitable), default=ENDLESS_BYTES)
    on_node = min(slots, max((node.slots for node in suitable), default=slots))
    smaller = fitted(base, hyper, device, tokens, slot_bytes, asked, slots, on_node)
    if suitable:
        most_bytes = max(node.memory_bytes for node in suitable)
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
    if smaller.shard_weights and slots % on_node:
        fewer = slots - slots % on_node
        text = f"each of several nodes has all shards, and the largest node has {on_node} slots"
        raise invalid(f"{text}. Set slots to {fewer} or {fewer + on_node}.", SLOTS)
    in_row = hyper.tensor_parallel * hyper.context_parallel
    if on_node % in_row:
        text = (
            f"{in_row} slots of one node compute a row together, and a node gives {on_node}. "
            f"Set it to a divisor of {on_node}."
        )
        name = "tensor_parallel" if hyper.tensor_parallel > 1 else "context_parallel"
        raise invalid(text, f"training.{name}")
    shared = shared_among(smaller, slots)
    if shared is None:
        rows, groups = hyper.batch_size, slots // in_row
        text = (
            f"a step has {rows} packed row{'' if rows == 1 else 's'} (batch_size), which "
            f"{slots} slots cannot share. Set batch_size to {groups} or more, or use fewer slots."
        )
        raise invalid(text, SLOTS)
    chosen = [] if "engine" in asked else ["engine"]
    chosen += [name for name in PLANNED if getattr(shared, name) != getattr(hyper, name)]
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
