"""Settings with their sources, and nodes with what they lack."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from msgspec import structs

from schemas.training import NodeConstraints
from services.gateway.jobs.domain.bodies import JobRequest
from services.gateway.jobs.domain.cost_responses import engine_response
from services.gateway.jobs.domain.node_choice import NodeKind
from services.gateway.jobs.domain.plan_responses import nodes_of, settings_of
from services.gateway.jobs.domain.requested import requested_settings
from simulator.control_plane.samples import spec, tokens
from tests.unit.services.gateway.control_plane import BASE
from tests.unit.services.gateway.jobs.domain.test_resolve import (
    of_model,
    refusal_of,
    request,
    spec_of,
)
from tests.unit.services.gateway.jobs.job_events import TOKENS
from tunery.plan.estimate import estimate
from tunery.plan.fitting import engine_reason, memory_reason
from tunery.plan.knobs import KNOBS
from tunery.plan.memory import memory_bytes

KIND = NodeKind(is_alive=True, device="cpu", accelerator="", slots=4, memory_bytes=10**10, nodes=2)


def test_every_hyper_parameter_has_a_row_with_its_source() -> None:
    body = JobRequest.model_validate(
        {"model": "m", "training_file": "file-1", "training": {"batch_size": 2}}
    )
    settings, _ = requested_settings(body)
    rows = {row.name: row for row in settings_of(spec(), settings, is_seed_given=True)}
    supervised = {
        n for n, knob in KNOBS.items() if "supervised" in (knob.methods or ("supervised",))
    }
    own = {"method", "seed", "slots", "length_policy", "reasoning"}
    own |= {"validation_fraction", "mixture"}
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
    streamed = structs.replace(again, engine="fsdp2", offload=True)
    for hyper, chosen in ((again, ("recompute",)), (streamed, ("recompute", "offload"))):
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
            ways = " and ".join(chosen)
            assert f"GB with {ways}: the first that a slot has is taken" in rows[name].why
        kept = request(training=training | dict.fromkeys(chosen, False) | {"offload": False})
        refusal = refusal_of(kept, base=base, nodes=nodes)
        assert "one row at a time needs about" in refusal.message
    assert whole.auto[-1] == "engine"
    rows = {row.name: row for row in settings_of(whole, settings, is_seed_given=False)}
    assert (rows["engine"].value, rows["engine"].why) == ("single", engine_reason(whole))


def test_all_weights_are_sharded_over_several_slots() -> None:
    """What a request sets is kept to; one slot has no other to share with."""
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
    assert (whole.hyper.engine, whole.hyper.shard_weights) == ("fsdp2", True)
    limit = memory_bytes(base, structs.replace(whole.hyper, recompute=True), "cuda", TOKENS, 4)
    nodes = [replace(device, memory_bytes=limit)]
    planned = spec_of(request(training=training), base=base, nodes=nodes)
    assert (planned.hyper.recompute, planned.hyper.shard_weights) == (True, True)
    assert planned.auto == (*whole.auto[:-1], "recompute", "shard_weights")
    assert "each of 4 slots keeps a share" in (memory_reason(planned) or "")
    kept = request(training=training | {"shard_weights": False})
    text = refusal_of(kept, base=base, nodes=nodes).message
    assert "one row at a time on each of 4 slots needs about" in text
    alone = request(training=training | {"shard_weights": True, "slots": 1})
    refusal = refusal_of(alone, base=base, nodes=[device])
    assert refusal.param == "training.shard_weights"
    assert "set slots to 2 or more" in refusal.message


def test_weights_on_several_nodes_are_sharded_within_each() -> None:
    """A slot of 8 on four nodes has an eighth of them, and nodes that differ are refused."""
    asked: dict[str, Any] = {"max_length": 512, "adaptation": "full", "slots": 32, "batch_size": 32}
    nodes = [replace(of_model("h100"), slots=8, nodes=5, fabric=True)]
    planned = spec_of(request(training=asked), nodes=nodes)
    assert (planned.hyper.shard_weights, planned.hyper.shards) == (True, 8)
    on_one = spec_of(request(training=asked | {"slots": 8}), nodes=nodes)
    assert on_one.hyper.shards == 0
    refusal = refusal_of(request(training=asked | {"slots": 28}), nodes=nodes)
    assert refusal.param == "training.slots"
    assert "Set slots to 24 or 32." in refusal.message
    apart = [replace(node, fabric=False) for node in nodes]
    refusal = refusal_of(request(training=asked), nodes=apart)
    assert "network (TUNERY_NODE_FABRIC); set it to 8" in refusal.message


def test_an_engine_that_has_not_run_on_such_devices_is_called_experimental() -> None:
    asked: dict[str, Any] = {"slots": 4, "batch_size": 4, "max_length": 512}
    spec = spec_of(request(training=asked), nodes=[replace(of_model("h100"), slots=4)])
    shown = engine_response(spec)
    assert (shown.name, shown.experimental, shown.ran_on) == ("fsdp2", True, ["cpu"])
    assert "each of 4 slots has the memory" in shown.reason
    on_processors = engine_response(structs.replace(spec, device="cpu"))
    assert not on_processors.experimental
