"""From a request and the facts about it to a job, without HTTP, clock or database."""

import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.account import Limits
from schemas.billing import PriceBook
from schemas.dataset import Validation
from schemas.sealed import Sealed
from schemas.submission import JobSpec
from schemas.training import HyperParameters, NodeConstraints
from services.gateway.jobs.domain.bodies import JobRequest
from services.gateway.jobs.domain.node_choice import NodeKind
from services.gateway.jobs.domain.resolve import Facts, canonical, resolve
from services.gateway.models.domain.names import slug
from services.gateway.views.tables.accounts import TenantRow
from services.gateway.views.tables.files import FileRow
from services.gateway.web.domain.errors import ApiError
from tests.unit.services.gateway.control_plane import BASE
from tests.unit.services.gateway.jobs.job_events import TOKENS
from tests.unit.tunery.graders.test_grader import CHECK, SCORE
from tunery.plan.memory import memory_bytes

SEALED = Sealed(key_id="k", nonce=b"n", ciphertext=b"c")
TENANT = TenantRow(
    id="acme",
    name=SEALED,
    plan="premium",
    limits=Limits(soft_gpu_ms=1, hard_gpu_ms=1, concurrency=1),
    price_version="2026-11",
    created_at=1,
)
BOOK = PriceBook(
    version="2026-11",
    currency="EUR",
    gpu_hour_micro={"premium": 3_200_000},
    token_micro_per_million=0,
)
VALIDATION = Validation(
    accepted=True,
    dialect="chat",
    rows=20,
    errors=0,
    warnings=0,
    tokens=(TOKENS,),
    report_blob="r",
)
FILE = FileRow(
    tenant="acme",
    id="file-1",
    sequence=1,
    created_at=1,
    purpose="fine-tune",
    name=SEALED,
    bytes=1,
    sha256="ab" * 32,
    blob="b",
    status="processed",
    expires_at=None,
    dataset=None,
    dataset_name=None,
    version=None,
    validation=VALIDATION,
)
PROMPTS = replace(FILE, validation=replace(VALIDATION, dialect="prompts"))
UNCHECKED = replace(FILE, status="uploaded", validation=None)
GB = 10**9


def of_model(accelerator: str) -> NodeKind:
    return NodeKind(
        is_alive=True, device="cuda", accelerator=accelerator, slots=1, memory_bytes=80 * GB
    )


def apart(nodes: list[NodeKind]) -> list[NodeKind]:
    """Nodes whose network is not trusted for ranks."""
    return [dataclasses.replace(node, fabric=False) for node in nodes]


def of_memory(gigabytes: int, slots: int, model: str = "") -> NodeKind:
    """A machine without an accelerator."""
    return NodeKind(
        is_alive=True,
        device="cpu",
        accelerator=model,
        slots=slots,
        memory_bytes=gigabytes * GB,
        fabric=True,
    )


def facts(**changed: Any) -> Facts:
    known: dict[str, Any] = {
        "tenant_id": "acme",
        "tenant": TENANT,
        "allowed_models": None,
        "base": BASE,
        "training": FILE,
        "held_out": None,
        "nodes": [],
        "book": BOOK,
        "job_id": "ftjob-00000000abcdefgh",
        "seed": 7,
        "suffix_hmac": "line",
    }
    return Facts(**{**known, **changed})


def request(**fields: Any) -> JobRequest:
    return JobRequest.model_validate({"model": "tiny-llama", "training_file": "file-1", **fields})


def spec_of(body: JobRequest, **changed: Any) -> JobSpec:
    return resolve(body, facts(**changed)).spec


def refusal_of(body: JobRequest, **changed: Any) -> ApiError:
    with pytest.raises(ApiError) as refusal:
        resolve(body, facts(**changed))
    return refusal.value


def test_the_job_is_made_of_the_request_and_the_facts() -> None:
    spec = spec_of(request(suffix="Mine!"), texts={"suffix": SEALED}, sealed_suffix="~mfrgg")
    assert (spec.base, spec.training_file, spec.pool) == (BASE, "file-1", "default")
    assert (spec.series, spec.model_id) == ("tiny-llama/line", "ft:tiny-llama:acme:~mfrgg:abcdefgh")
    assert (spec.price.version, spec.price.gpu_hour_micro) == ("2026-11", 3_200_000)
    assert (spec.suffix, spec.metadata, spec.hyper.seed) == (SEALED, None, 7)
    assert spec_of(request(seed=11)).hyper.seed == 11


def test_first_hour_s12_a_model_is_named_as_the_request_names_its_base() -> None:
    base = replace(BASE, aliases=("gpt-4o-mini",))
    spec = spec_of(request(model="gpt-4o-mini"), base=base)
    assert (spec.model_id, spec.series) == ("ft:gpt-4o-mini:acme::abcdefgh", "tiny-llama/line")
    assert spec_of(request(), base=base).model_id == "ft:tiny-llama:acme::abcdefgh"


def test_files_are_named_by_their_ids_whatever_the_request_calls_them() -> None:
    held_out = replace(FILE, id="file-2")
    body = request(training_file="faq@2", validation_file="faq@1")
    spec = spec_of(body, held_out=held_out)
    assert (spec.training_file, spec.validation_file) == ("file-1", "file-2")


def test_a_key_trains_the_models_that_it_may() -> None:
    refusal = refusal_of(request(), allowed_models=frozenset({"other"}))
    assert (refusal.status, refusal.param) == (403, "model")
    assert spec_of(request(), allowed_models=frozenset({"tiny-llama"})).base == BASE


def test_a_missing_tenant_or_price_book_is_named() -> None:
    assert "Tenant 'acme' does not exist" in refusal_of(request(), tenant=None).message
    missing = refusal_of(request(), book=None)
    assert (missing.status, missing.code) == (503, "price_book_missing")
    assert missing.headers == {"retry-after": "60"}


def test_groups_of_hyper_parameters_become_one_job() -> None:
    spec = spec_of(
        request(
            method={"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 3}}},
            lora={"rank": 8, "alpha": "auto"},
            training={
                "learning_rate": 2e-3,
                "slots": 1,
                "length_policy": "truncate",
                "validation_fraction": 0.05,
            },
        )
    )
    assert (spec.hyper.n_epochs, spec.hyper.rank, spec.hyper.alpha) == (3, 8, 16)
    assert spec.hyper.learning_rate_ppb == 2_000_000
    assert (spec.slots, spec.length_policy, spec.validation_fraction_ppm) == (1, "truncate", 50_000)
    assert "alpha" in spec.auto
    assert "rank" not in spec.auto


def test_only_plain_text_is_split() -> None:
    body = request(training={"length_policy": "split"})
    text = replace(FILE, validation=replace(VALIDATION, dialect="text"))
    for file in (UNCHECKED, text):
        assert spec_of(body, training=file).length_policy == "split"
    refusal = refusal_of(body)
    assert "file-1 is chat; use reject or truncate" in refusal.message
    assert (refusal.status, refusal.param) == (400, "training.length_policy")


def test_the_deprecated_top_level_form_is_understood() -> None:
    spec = spec_of(request(hyperparameters={"n_epochs": 4, "batch_size": "auto"}))
    assert spec.hyper.n_epochs == 4
    assert "batch_size" in spec.auto


def test_a_validation_file_leaves_the_training_file_whole() -> None:
    assert spec_of(request(validation_file="file-2"), held_out=FILE).validation_fraction_ppm == 0
    assert spec_of(request()).validation_fraction_ppm == 100_000


def test_the_same_parameter_twice_is_a_problem_unless_equal() -> None:
    twice = request(hyperparameters={"n_epochs": 4}, training={"n_epochs": 5})
    assert "training.n_epochs: also given as hyperparameters" in refusal_of(twice).message
    assert spec_of(request(hyperparameters={"n_epochs": 4}, training={"n_epochs": 4}))


def test_an_unknown_model_alone_is_404_and_with_other_problems_one_of_them() -> None:
    assert refusal_of(request(), base=None).status == 404
    among = refusal_of(request(training={"slots": 0}), base=None)
    assert (among.status, among.param) == (400, "model")
    assert "training.slots" in among.message


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
def test_suffixes_are_normalised_for_model_names(suffix: str, shown: str) -> None:
    assert slug(suffix) == shown


def test_equal_requests_are_equal_bytes() -> None:
    first = JobRequest.model_validate_json(b'{"model": "m", "training_file": "f", "seed": 1}')
    other = JobRequest.model_validate_json(b'{ "seed":1, "training_file":"f", "model":"m" }')
    assert canonical(first) == canonical(other)
    assert canonical(first) != canonical(first.model_copy(update={"seed": 2}))


def test_files_that_a_job_cannot_use_are_refused() -> None:
    missing = refusal_of(request(), training=None)
    assert (missing.status, missing.message) == (404, "No such File object: file-1")
    results = refusal_of(request(), training=replace(FILE, purpose="fine-tune-results"))
    assert "purpose 'fine-tune'" in results.message
    bad = replace(FILE, status="error", validation=replace(VALIDATION, errors=3))
    rejected = refusal_of(request(validation_file="file-2"), held_out=bad)
    assert "file-2 was rejected with 3 errors" in rejected.message
    assert (rejected.status, rejected.param) == (422, "validation_file")


def test_tokens_are_those_of_this_base_and_no_other() -> None:
    assert resolve(request(), facts()).tokens == TOKENS
    assert resolve(request(), facts(training=UNCHECKED)).tokens is None
    stale = refusal_of(request(), base=replace(BASE, sha256="cd" * 32))
    assert "checked before tiny-llama was added" in stale.message


def test_the_evals_share_of_rows_may_be_given_in_either_group() -> None:
    assert spec_of(request(eval={"validation_fraction": 0.2})).validation_fraction_ppm == 200_000
    both = request(eval={"validation_fraction": 0.2}, training={"validation_fraction": 0.1})
    assert refusal_of(both).param == "eval.validation_fraction"
    unknown = refusal_of(request(eval={"judge": "x"}))
    assert "eval takes validation_fraction, drop_max" in unknown.message


def test_how_much_the_gate_allows_may_be_given() -> None:
    assert spec_of(request(eval={"drop_max": 0.02})).drop_max_ppm == 20_000
    assert spec_of(request(eval={"drop_max": None})).drop_max_ppm is None
    for group, value in (("eval", 0.6), ("eval", "2 %"), ("eval", True), ("training", 0.02)):
        refusal = refusal_of(request(**{group: {"drop_max": value}}))
        assert refusal.param == f"{group}.drop_max"


def test_a_budget_becomes_integers() -> None:
    budget = spec_of(request(budget={"max_gpu_hours": 0.5})).budget
    assert budget is not None
    assert (budget.max_gpu_ms, budget.max_amount_micro) == (1_800_000, None)
    assert spec_of(request()).budget is None


def test_unsupported_methods_are_refused_with_the_supported_ones() -> None:
    refusal = refusal_of(request(method={"type": "ppo"}))
    assert (refusal.status, refusal.param) == (400, "method.type")
    assert refusal.code == "unsupported"
    assert (
        "supported: supervised, dpo, simpo, orpo, cpo, kto, reward, reinforcement"
        in refusal.message
    )


def graded(grader: Any = CHECK, training: Any = None, **details: Any) -> JobRequest:
    method = {"type": "reinforcement", "reinforcement": {"grader": grader, **details}}
    return request(method=method, training=training)


def test_method_reinforcement_has_a_grader_and_openais_settings() -> None:
    own = {"eval_interval": 5, "compute_multiplier": "auto", "num_generations": 4}
    body = graded(hyperparameters=own)
    job = spec_of(body, training=PROMPTS, texts={"grader": SEALED})
    assert (job.grader, job.hyper.method) == (SEALED, "reinforcement")
    assert (job.hyper.eval_every_steps, job.hyper.num_generations) == (5, 4)
    assert (job.hyper.beta_ppm, job.hyper.max_completion_length) == (40_000, 256)
    other = spec_of(graded({**CHECK, "operation": "ne"}, hyperparameters=own), training=PROMPTS)
    assert other.configuration != job.configuration
    chats = refusal_of(graded())
    assert chats.param == "training_file"
    assert "the method reinforcement learns from a prompt that ends with" in chats.message


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        (graded(None), "method.reinforcement.grader", "is required"),
        (
            graded({**CHECK, "operation": "regex"}),
            "method.reinforcement.grader.operation",
            "must be one of eq, ne, like, ilike",
        ),
        (graded({"type": "python"}), "method.reinforcement.grader.type", "is never run"),
        (
            graded(response_format={"type": "json_schema"}),
            "method.reinforcement.response_format",
            "is not built; ask for the form in the prompt",
        ),
        (
            graded(hyperparameters={"compute_multiplier": 2}),
            "method.reinforcement.hyperparameters.compute_multiplier",
            "set num_generations",
        ),
        (graded(training={"adaptation": "full"}), "training.adaptation", "use lora or qlora"),
        (graded(training={"gamma": 2}), "training.gamma", "simpo"),
    ],
)
def test_method_reinforcement_what_is_wrong_is_named(
    body: JobRequest, param: str, said: str
) -> None:
    refusal = refusal_of(body, training=PROMPTS)
    assert (refusal.status, refusal.param) == (400, param)
    assert said in refusal.message


def test_every_form_of_a_hyper_parameter_is_the_same_request() -> None:
    method = {"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 3}}}
    new = spec_of(request(method=method))
    assert spec_of(request(hyperparameters={"n_epochs": 3})) == new
    assert spec_of(request(method=method, hyperparameters={"n_epochs": 3})) == new
    auto = spec_of(request(hyperparameters={"n_epochs": "auto", "batch_size": None}))
    assert auto == spec_of(request())
    twice = refusal_of(request(method=method, hyperparameters={"n_epochs": 4}))
    assert twice.param == "hyperparameters.n_epochs"


@pytest.mark.parametrize(
    ("changes", "nodes", "words"),
    [
        ({}, [of_model("h100")], "have 1 for it, since several are combined only over a trusted"),
        (
            {},
            apart([of_memory(64, 2), of_memory(64, 1)]),
            "(TUNERY_NODE_FABRIC); set it to 2; it is 4",
        ),
        ({}, [of_memory(64, 2), of_memory(9, 1)], "together have 2 for it; it is 4"),
        ({}, [of_memory(64, 2), of_memory(64, 1)], "together have 3 for it; it is 4"),
        (
            {"hyperparameters": {"batch_size": 3}},
            [of_memory(64, 4)],
            "a step has 3 packed rows (batch_size), which 4 slots cannot share. Set batch_size to",
        ),
        (
            {"training": {"slots": 65}},
            [],
            'must be a whole number from 1 to 64, or "auto"; it is 65',
        ),
    ],
)
def test_training_m4_sched_c15_slots_that_a_training_cannot_use_are_refused_with_the_fix(
    changes: dict[str, Any], nodes: list[NodeKind], words: str
) -> None:
    """Finding M4: they were billed, trained no faster, and the hold cut such a job off.

    Finding C15: a job that asked for more than any node has waited for ever.
    """
    changes = {"training": {"slots": 4}, "hyperparameters": {"batch_size": 16}} | changes
    refused = refusal_of(request(**changes), nodes=nodes)
    assert (refused.status, refused.param) == (400, "training.slots")
    assert words in refused.message


@pytest.mark.parametrize(
    ("batch", "asked", "slots", "nodes", "parts"),
    [
        (8, None, 1, [], 1),
        (8, None, 4, [], 4),
        (8, None, 3, [], 8),  # parts of two rows would leave one slot with half of the step
        (8, 8, 2, [], 8),
        (16, None, 4, [of_memory(200, 4)], 4),
        (16, None, 2, [of_memory(16, 4)], 8),  # as its memory allows
    ],
)
def test_every_slot_of_a_training_gets_micro_batches_of_each_step(
    batch: int, asked: int | None, slots: int, nodes: list[NodeKind], parts: int
) -> None:
    hyper = {"batch_size": batch} | ({} if asked is None else {"accumulation": asked})
    body = request(training={"slots": slots, "max_length": 512}, hyperparameters=hyper)
    spec = resolve(body, facts(nodes=nodes)).spec
    assert (spec.slots, spec.hyper.batch_size, spec.hyper.accumulation) == (slots, batch, parts)


def test_training_m5_each_slot_has_the_memory_of_a_whole_training() -> None:
    """Each rank has the base model by itself."""
    changes = {"max_length": 2_048, "slots": 8}
    body = request(training=changes, hyperparameters={"batch_size": 8})
    refusal = refusal_of(body, nodes=[of_memory(16, 8)])
    assert "one row at a time on each of 8 slots needs about" in refusal.message


@pytest.mark.parametrize("adaptation", ["lora", "qlora", "full"])
def test_devices_of_a_training_have_memory_of_their_own(adaptation: str) -> None:
    """With copied weights each holds the whole model: a step is divided until it fits one."""
    training = {"slots": 4, "max_length": 2_048, "adaptation": adaptation}
    training |= {"recompute": False, "shard_weights": False}
    body = request(training=training, hyperparameters={"batch_size": 16})
    large = dataclasses.replace(of_model("h100"), slots=8)
    spec = spec_of(body, nodes=[large])
    assert (spec.device, spec.slots, spec.hyper.batch_size) == ("cuda", 4, 16)
    one_row = memory_bytes(BASE, replace(spec.hyper, accumulation=16), "cuda", TOKENS, ranks=4)
    tight = spec_of(body, nodes=[dataclasses.replace(large, memory_bytes=one_row)])
    assert (tight.slots, tight.hyper.accumulation) == (4, 16)
    refusal = refusal_of(body, nodes=[dataclasses.replace(large, memory_bytes=one_row - 1)])
    assert refusal.param == "training.max_length"
    assert "on each of 4 slots needs about" in refusal.message
    assert "of the accelerators that the job may have the largest has" in refusal.message


@pytest.mark.parametrize("slots", [0.5, 1.5, "half", True])
def test_devices_no_part_of_a_device_can_be_had(slots: object) -> None:
    refused = refusal_of(request(training={"slots": slots}))
    assert (refused.status, refused.param) == (400, "training.slots")


def test_training_m5_a_step_is_divided_until_the_largest_slot_has_the_memory() -> None:
    """Finding M5: no estimate was ever compared with a node, so such a job ran out of memory."""
    body = request(training={"max_length": 512}, hyperparameters={"batch_size": 16})
    whole = resolve(body, facts(nodes=[of_memory(200, 1)]))
    assert (whole.spec.hyper.batch_size, whole.spec.hyper.accumulation) == (16, 1)
    small = resolve(body, facts(nodes=[of_memory(8, 2), of_memory(4, 4)]))
    assert small.spec.hyper == replace(whole.spec.hyper, accumulation=8)
    assert memory_bytes(BASE, small.spec.hyper, "cpu", TOKENS) <= 4 * GB
    assert small.spec.auto == whole.spec.auto


def test_training_m5_a_job_that_no_node_has_the_memory_for_is_refused() -> None:
    """Finding M5: it was accepted, and waited for ever."""
    body = request(training={"max_length": 2_048})
    refusal = refusal_of(body, nodes=[of_memory(2, 2)])
    assert (refusal.status, refusal.param) == (400, "training.max_length")
    assert "needs about" in refusal.message
    assert "the job may have the largest has 2.0 GB" in refusal.message
    assert "Lower max_length or lora.rank, or choose a smaller model." in refusal.message
    alone = resolve(body, facts(nodes=[of_memory(200, 200)])).spec.hyper
    assert alone.accumulation == alone.batch_size, "one row at a time, on the whole node"


def test_training_m5_where_no_node_is_known_nothing_is_divided_or_refused() -> None:
    body = request(hyperparameters={"batch_size": 16})
    assert resolve(body, facts()).spec.hyper.accumulation == 1


def test_memory_counts_on_nodes_that_the_job_may_have() -> None:
    """A small model of device was asked for, and the micro-batches were those of the largest."""
    nodes = [of_memory(8, 2, "small"), of_memory(200, 1)]
    body = {"training": {"max_length": 512}, "hyperparameters": {"batch_size": 16}}
    asked = request(**body, placement={"accelerator": "small"})
    assert resolve(asked, facts(nodes=nodes)).spec.hyper.accumulation == 8
    assert resolve(request(**body), facts(nodes=nodes)).spec.hyper.accumulation == 1


def test_what_a_request_demands_of_nodes_is_on_the_log() -> None:
    assert spec_of(request()).constraints is spec_of(request(placement={})).constraints is None
    never = request(placement={"spot": False, "finish_by": 1_800_000_000})
    constraints = NodeConstraints(spot=False, finish_by=1_800_000_000_000)
    assert spec_of(never).constraints == constraints
    asked = request(placement={"tolerations": ["research", "eu", "research"]})
    assert spec_of(asked).constraints == NodeConstraints(tolerations=("eu", "research"))
    near = request(placement={"domain": "rack-3", "domain_wait_minutes": 10})
    constraints = NodeConstraints(domain="rack-3", domain_wait_ms=600_000)
    assert spec_of(near).constraints == constraints
    nodes = [of_model("h200"), of_memory(8, 2)]
    assert spec_of(request(placement={"accelerator": "h200"}), nodes=nodes).device == "cuda"


def test_a_demand_that_no_node_meets_is_refused() -> None:
    asked = request(placement={"accelerator": "b200"})
    assert spec_of(asked).constraints == NodeConstraints(accelerator="b200")
    refusal = refusal_of(asked, nodes=[of_model("h200")])
    assert (refusal.status, refusal.param) == (400, "placement.accelerator")


def dpo(**hyperparameters: Any) -> dict[str, Any]:
    return {"type": "dpo", "dpo": {"hyperparameters": hyperparameters}}


def pairs_file() -> FileRow:
    file = facts().training
    assert file is not None
    assert file.validation is not None
    return replace(file, validation=replace(file.validation, dialect="dpo"))


def test_method_dpo_resolves_to_its_own_rates_and_weight() -> None:
    """OpenAI's body: what it leaves out follows the method."""
    usual = spec_of(request(hyperparameters={"batch_size": 4}))
    pairs = pairs_file()
    hyper = spec_of(
        request(method=dpo(beta=0.2, n_epochs="auto", batch_size=4)), training=pairs
    ).hyper
    assert (hyper.method, hyper.beta_ppm, hyper.loss_type) == ("dpo", 200_000, "sigmoid")
    assert (hyper.batch_size, hyper.dropout_ppm) == (4, 0)
    assert hyper.learning_rate_ppb == pytest.approx(usual.hyper.learning_rate_ppb / 20, rel=1e-6)
    twice = request(
        method=dpo(learning_rate_multiplier=2, batch_size=4), training={"loss_type": "ipo"}
    )
    faster = spec_of(twice, training=pairs).hyper
    assert faster.learning_rate_ppb == pytest.approx(usual.hyper.learning_rate_ppb / 10, rel=1e-6)
    assert (faster.beta_ppm, faster.loss_type) == (100_000, "ipo")
    assert spec_of(request(method={"type": "dpo"}), training=pairs).hyper.beta_ppm == 100_000


def test_method_without_a_reference_has_its_own_weights_and_rates() -> None:
    def hyper_of(name: str, **own: Any) -> HyperParameters:
        method = {"type": name, name: {"hyperparameters": {"batch_size": 4, **own}}}
        return spec_of(request(method=method), training=pairs_file()).hyper

    simpo, orpo, cpo = hyper_of("simpo", label_smoothing=0.1), hyper_of("orpo"), hyper_of("cpo")
    assert (simpo.beta_ppm, simpo.gamma_ppm, simpo.label_smoothing_ppm) == (
        2_000_000,
        1_000_000,
        100_000,
    )
    assert (orpo.beta_ppm, orpo.gamma_ppm, cpo.beta_ppm) == (100_000, 0, 100_000)
    reward = hyper_of("reward", center_rewards_coefficient=0.01)
    assert (reward.center_rewards_ppm, hyper_of("reward").center_rewards_ppm) == (10_000, 0)
    kto = hyper_of("kto", undesirable_weight=1.5)
    assert (kto.beta_ppm, kto.desirable_ppm, kto.undesirable_ppm) == (100_000, 1_000_000, 1_500_000)
    assert orpo.learning_rate_ppb == pytest.approx(4 * cpo.learning_rate_ppb, rel=1e-5)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"method": dpo(beta=0)}, "method.dpo.hyperparameters.beta"),
        ({"training": {"beta": 0.1}}, "training.beta"),
        ({"method": {"type": "supervised", "dpo": {}}}, "method.dpo"),
        ({"method": {"type": "dpo", "supervised": {}}}, "method.supervised"),
        ({"method": dpo(), "training": {"train_on_prompts": True}}, "training.train_on_prompts"),
        ({"method": dpo(), "training": {"loss_type": "aot"}}, "training.loss_type"),
        ({"method": {"type": "orpo", "dpo": {}}}, "method.dpo"),
        ({"training": {"sample_every_steps": 5}}, "training.sample_every_steps"),
        ({"method": dpo(loss_type="exo_pair")}, "method.dpo.hyperparameters.loss_type"),
    ],
)
def test_method_what_does_not_go_together_is_refused_by_name(
    fields: dict[str, Any], param: str
) -> None:
    assert refusal_of(request(**fields)).param == param


def test_method_rows_that_it_does_not_learn_from_are_refused_with_the_one_that_does() -> None:
    pairs = refusal_of(request(), training=pairs_file())
    assert (pairs.param, pairs.code) == ("training_file", "invalid_value")
    assert (
        'Set method.type to "dpo" or "simpo" or "orpo" or "cpo" or "kto" or "reward", or upload'
        in pairs.message
    )
    chats = refusal_of(request(method=dpo()))
    assert chats.param == "training_file"
    assert 'Set method.type to "supervised", or upload another file.' in chats.message


def test_method_reinforcement_a_model_that_scores_is_asked_where_the_operator_lets_it() -> None:
    asks = dataclasses.replace(of_memory(10**6, 1), scores=True)
    job = spec_of(graded(SCORE), training=PROMPTS, texts={"grader": SEALED}, nodes=[asks])
    assert job.grader == SEALED
    refused = refusal_of(graded(SCORE), training=PROMPTS, nodes=[asks, of_memory(10**6, 1)])
    assert refused.param == "method.reinforcement.grader"
    assert "have no endpoint to ask (TUNERY_NODE_SCORE_URL)" in refused.message
    other = spec_of(graded(), training=PROMPTS, nodes=[of_memory(10**6, 1)])
    assert other.hyper.method == "reinforcement", "it asks no model"
    two = dataclasses.replace(of_memory(10**6, 2), scores=True)
    alone = refusal_of(graded(SCORE, {"slots": 2}), training=PROMPTS, nodes=[two])
    assert "whose grader asks models keeps their answers in one slot" in alone.message
    shared = graded(CHECK, {"slots": 2}, hyperparameters={"batch_size": 2})
    assert spec_of(shared, training=PROMPTS, nodes=[two]).slots == 2
    why = "'judge-1' gives no scores here"
    unknown = refusal_of(graded(SCORE), training=PROMPTS, nodes=[asks], score_problem=why)
    assert (unknown.param, why in unknown.message) == ("method.reinforcement.grader", True)
