"""Settings with their sources, and nodes with what they lack."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from msgspec import structs

from schemas.training import NodeConstraints
from services.gateway.jobs.bodies import JobRequest
from services.gateway.jobs.node_choice import NodeKind
from services.gateway.jobs.plan_responses import nodes_of, settings_of
from services.gateway.jobs.requested import requested_settings
from simulator.control_plane.samples import spec, tokens
from tests.unit.services.gateway.control_plane import BASE
from tests.unit.services.gateway.jobs.job_events import TOKENS
from tests.unit.services.gateway.jobs.test_resolve import of_model, refusal_of, request, spec_of
from tunery.plan.estimate import estimate
from tunery.plan.fitting import PLANNED, memory_reason
from tunery.plan.knobs import KNOBS
from tunery.plan.memory import memory_bytes

KIND = NodeKind(is_alive=True, device="cpu", accelerator="", slots=4, memory_bytes=10**10, nodes=2)


def test_every_hyper_parameter_has_a_row_with_its_source() -> None:
    body = JobRequest.model_validate(
        {"model": "m", "training_file": "file-1", "training": {"batch_size": 2}}
    )
    settings, _ = requested_settings(body)
    rows = {row.name: row for row in settings_of(spec(), settings, is_seed_given=True)}
    supervised = {name for name, knob in KNOBS.items() if not knob.methods}
    own = {"method", "seed", "length_policy", "validation_fraction", "mixture"}
    assert {*rows} == supervised - {"learning_rate_multiplier", "threads"} | own
    assert (rows["batch_size"].source, rows["batch_size"].path) == ("given", "training.batch_size")
    assert (rows["n_epochs"].source, rows["seed"].source) == ("rule", "given")
    assert rows["warmup_ratio"].why == KNOBS["warmup_ratio"].source


@pytest.mark.parametrize(
    ("kind", "constraints", "why_not"),
    [
        (KIND, None, None),
        (replace(KIND, device="cuda"), None, "the job is for cpu devices"),
        (KIND, NodeConstraints(accelerator="h200"), "the job asks for h200"),
        (KIND, NodeConstraints(domain="r"), "the job asks for the domain r"),
        (KIND, NodeConstraints(domain="r", domain_wait_ms=1), None),
        (
            replace(KIND, spot=True),
            NodeConstraints(spot=False),
            "the job is never on spot machines",
        ),
        (replace(KIND, spot=True), None, None),
        (replace(KIND, taints=("a", "b")), NodeConstraints(tolerations=("a",)), "kept for jobs"),
        (replace(KIND, is_alive=False), None, "not alive"),
    ],
)
def test_a_node_that_does_not_fit_says_why(
    kind: NodeKind, constraints: NodeConstraints | None, why_not: str | None
) -> None:
    (row,) = nodes_of([kind], spec(constraints=constraints), None)
    assert (row.fits, row.nodes) == (why_not is None, 2)
    assert (row.why_not or "").startswith(why_not or "")


@pytest.mark.parametrize(
    ("gigabytes", "slots", "small", "large"),
    [
        (6, 1, None, None),
        (6, 2, "the job needs 2 slots of one node", "the job needs 12.0 GB of memory"),
        (2, 5, None, None),
        (6, 5, None, "the job needs 24.0 GB of memory"),
    ],
)
def test_slots_of_one_job_share_the_memory_of_a_node_and_are_of_several_where_none_has_so_many(
    gigabytes: int, slots: int, small: str | None, large: str | None
) -> None:
    estimated = estimate(spec(), tokens(1_000))
    needed = msgspec.structs.replace(estimated, memory_bytes=gigabytes * 10**9)
    kinds = [replace(KIND, slots=1), KIND]
    rows = {row.slots: row for row in nodes_of(kinds, spec(slots=slots), needed)}
    assert (rows[1].why_not, rows[4].why_not) == (small, large)


def test_each_device_has_memory_of_its_own() -> None:
    estimated = estimate(spec(), tokens(1_000))
    needed = msgspec.structs.replace(estimated, memory_bytes=6 * 10**9)
    asked = msgspec.structs.replace(spec(slots=4), device="cuda")
    (row,) = nodes_of([replace(KIND, device="cuda")], asked, needed)
    assert row.fits


def test_training_m5_what_does_not_fit_is_computed_again_or_streamed_with_the_reason() -> None:
    """What costs least is chosen, and never against the request."""
    shape = {"hidden_size": 2_048, "inner_size": 8_192, "layers": 16, "vocabulary": 49_152}
    base = structs.replace(BASE, parameters=1_200_000_000, **shape)
    training: dict[str, Any] = {"max_length": 512, "precision": "bf16"}
    device = of_model("h100")
    whole = spec_of(request(training=training), base=base, nodes=[device])
    assert (whole.hyper.recompute, whole.hyper.offload, memory_reason(whole)) == (
        *(False, False),
        None,
    )
    again = structs.replace(whole.hyper, recompute=True)
    streamed = structs.replace(again, offload=True)
    for hyper, chosen in ((again, ("recompute",)), (streamed, PLANNED[:2])):
        limit = memory_bytes(base, hyper, "cuda", TOKENS)
        nodes = [replace(device, memory_bytes=limit)]
        body = request(training=training)
        planned = spec_of(body, base=base, nodes=nodes)
        assert planned.hyper == hyper
        assert planned.auto == (*whole.auto, *chosen)
        settings, _ = requested_settings(body)
        rows = {row.name: row for row in settings_of(planned, settings, is_seed_given=False)}
        for name in chosen:
            assert (rows[name].value, rows[name].source) == (True, "rule")
            assert f"GB with {chosen[-1]}: the first that a slot has is taken" in rows[name].why
            kept = request(training=training | {name: False})
            refusal = refusal_of(kept, base=base, nodes=nodes)
            assert "one row at a time needs about" in refusal.message
    refusal = refusal_of(request(training={"offload": True, "adaptation": "full"}))
    assert refusal.param == "training.offload"
    assert "every weight changes; set offload to false" in refusal.message


def test_weights_are_dealt_to_slots_where_they_do_not_fit_one() -> None:
    """What a request sets is kept to; one slot has nobody to deal them to."""
    shape = {"hidden_size": 2_048, "inner_size": 8_192, "layers": 16, "vocabulary": 49_152}
    base = structs.replace(BASE, parameters=1_200_000_000, **shape)
    training: dict[str, Any] = {
        "max_length": 512,
        "precision": "bf16",
        "adaptation": "full",
        "slots": 4,
        "batch_size": 4,
    }
    device = replace(of_model("h100"), slots=4)
    whole = spec_of(request(training=training), base=base, nodes=[device])
    dealt = structs.replace(whole.hyper, recompute=True, shard_weights=True)
    limit = memory_bytes(base, dealt, "cuda", TOKENS, 4)
    nodes = [replace(device, memory_bytes=limit)]
    planned = spec_of(request(training=training), base=base, nodes=nodes)
    assert (planned.hyper.recompute, planned.hyper.shard_weights) == (True, True)
    assert planned.auto == (*whole.auto, "recompute", "shard_weights")
    assert "each of 4 slots keeps a part" in (memory_reason(planned) or "")
    kept = request(training=training | {"shard_weights": False})
    text = refusal_of(kept, base=base, nodes=nodes).message
    assert "one row at a time on each of 4 slots needs about" in text
    alone = request(training=training | {"shard_weights": True, "slots": 1})
    refusal = refusal_of(alone, base=base, nodes=[device])
    assert refusal.param == "training.slots"
    assert "set slots to 2 or more" in refusal.message
    lora = request(training=training | {"shard_weights": True, "adaptation": "lora"})
    refusal = refusal_of(lora, base=base, nodes=[device])
    assert "only read (offload is for that); set shard_weights to false" in refusal.message
