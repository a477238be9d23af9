"""The agent of an open lease, and no other, may get the keys that the lease's work needs."""

from hashlib import sha256
from typing import Any

import pytest
from msgspec.structs import replace

from schemas import errors
from schemas.benchmark import Benchmark
from schemas.dataset import ChatFormat, no_rows
from schemas.envelope import Rejected
from schemas.lease_keys import (
    LeaseKeysRequested,
    LeaseKeysSealed,
    LeaseNeeds,
    NeededText,
    RecordLeaseKeys,
    RequestLeaseKeys,
)
from schemas.pool import ForgetWork, LeaseRef, PlacementClosed, Token
from schemas.sealed import Sealed
from schemas.streams import NODE_PREFIX
from schemas.training import AdapterStart, BlobFile, EvalWork, ServeWork
from services.scheduler.app import POOLS
from services.scheduler.domain.pool.lease_keys import needs_of
from services.scheduler.domain.pool.state import Lease
from simulator.control_plane.samples import PREPARED, T0, checkpoint, describe, node, request
from tests.unit.services.scheduler.domain.pool.test_decide import exited, freed, running
from tests.unit.services.scheduler.fold import Decider, of
from tests.unit.services.trainer.domain.test_evolve import SHA
from tests.unit.services.trainer.effect.test_training import WORK

pytestmark = pytest.mark.security

KEY = "a" * 64
BENCHMARK = Benchmark(
    name="b", task="t", kind="choices", sha256=SHA, blob="benchmarks/b", bytes=1, items=1
)


def ask(lease: int = 1, incarnation: str = "a-1", key: str = KEY) -> RequestLeaseKeys:
    return RequestLeaseKeys(lease=lease, incarnation=incarnation, public_key=key)


def answer(lease: int = 1, incarnation: str = "a-1") -> RecordLeaseKeys:
    return RecordLeaseKeys(
        lease=lease, incarnation=incarnation, public_key=KEY, sealed_keys="sealed"
    )


def refusal(events: tuple[Any, ...]) -> tuple[str, str]:
    (refused,) = events
    assert isinstance(refused, Rejected)
    return refused.code, refused.reason.code


STALE = (errors.STALE_TOKEN, "lease_not_open")


def test_the_agent_of_an_open_lease_gets_what_its_work_needs() -> None:
    decider = running()
    requested = of(decider.when(ask()), LeaseKeysRequested)
    holder = requested.holder
    tenant, job_id = holder.tenant, holder.job_id
    assert (holder.lease, holder.node_id, holder.incarnation) == (1, "a", "a-1")
    assert requested.public_key == KEY
    own = f"{job_id}/1/"
    assert requested.needs.writes == (
        f"t/{tenant}/checkpoints/{own}",
        f"t/{tenant}/adapters/{own}",
    )
    sealed = of(decider.when(answer()), LeaseKeysSealed)
    assert sealed == LeaseKeysSealed(holder=holder, sealed_keys="sealed")
    assert decider.refolded() == decider.state


@pytest.mark.parametrize("command", [ask, answer])
def test_security_m3_another_agent_lease_or_incarnation_gets_nothing(
    command: Any,
) -> None:
    decider = running()
    assert refusal(decider.when(command(incarnation="b-1"))) == STALE
    assert refusal(decider.when(command(lease=2))) == STALE
    decider.accept(node(incarnation="a-2"))
    assert refusal(decider.when(command())) == STALE
    assert refusal(decider.when(command(incarnation="a-2"))) == STALE


@pytest.mark.parametrize("command", [ask, answer])
def test_keys_of_a_lease_that_has_ended_are_of_no_use(command: Any) -> None:
    decider = running().accept(exited())
    assert refusal(decider.when(command())) == STALE
    decider.accept(freed())
    assert refusal(decider.when(command())) == STALE


def test_a_node_asks_for_leases_that_are_on_it() -> None:
    decider = running()
    spoken = decider.aggregate.decide(
        decider.state, ask(), replace(decider._context(decider.key), sender=f"{NODE_PREFIX}b")
    )
    assert refusal(spoken) == (errors.SENDER_REFUSED, "sender_not_node")


def test_what_is_no_public_key_is_refused() -> None:
    assert refusal(running().when(ask(key="g" * 64))) == (
        errors.MALFORMED,
        "public_key_malformed",
    )


def test_keys_of_a_lease_without_its_work_are_refused() -> None:
    decider = Decider(POOLS, "default", T0).accept(node(), describe("ftjob-1"))
    decider.accept(request("ftjob-1"))
    lease = decider.state["default"].leases
    assert all(known.work_id for known in lease.values())
    decider.accept(ForgetWork(job_id="ftjob-1"))
    assert refusal(decider.when(ask())) == (errors.ILLEGAL_STATE, "lease_work_unknown")


def test_an_agent_that_got_no_keys_says_so_without_a_detail() -> None:
    report = exited(outcome="failed", cause="platform", elapsed_ms=0, keyless=True)
    end = of(running().when(report), PlacementClosed).end
    assert (end.cause, end.ended_by, end.reason.code) == ("platform", "platform", "keys_missing")


# --- what a work needs
def lease_of(role: Any, named: tuple[Any, ...] = ()) -> Lease:
    ref = LeaseRef(
        token=Token(pool="default", lease=1),
        tenant="acme",
        job_id="job1",
        attempt=3,
        role=role,
        lane="free",
        price_version="p",
    )
    return Lease(ref=ref, members=(), max_gpu_ms=1, granted_at=0, named=named)


def blob(key: str) -> BlobFile:
    return BlobFile(name="x", blob=key, sha256=sha256(key.encode()).hexdigest(), bytes=1)


def sealed(name: str) -> Sealed:
    return Sealed(key_id="acme.1", nonce=name.encode(), ciphertext=b"x")


def test_a_training_reads_its_rows_its_start_and_its_checkpoints() -> None:
    start = AdapterStart(model_id="m", sha256=SHA, files=(blob("t/acme/models/m"),))
    prepared = replace(
        PREPARED, train_blob="t/acme/prepared/a", validation_blob="t/other/prepared/b"
    )
    work = replace(WORK, prepared=prepared, start=start, prompts=sealed("p"), grader=sealed("g"))
    resumed = replace(checkpoint(1, 1, 1, "f", "acme"), files=(blob("t/acme/checkpoints/c"),))
    assert needs_of(lease_of("train", (resumed,)), work) == LeaseNeeds(
        reads=("t/acme/checkpoints/c", "t/acme/models/m", "t/acme/prepared/a"),
        writes=("t/acme/checkpoints/job1/3/", "t/acme/adapters/job1/3/"),
        texts=(
            NeededText(field="prompts", sealed=sealed("p")),
            NeededText(field="grader", sealed=sealed("g")),
        ),
    )


def test_an_evaluation_reads_the_adapter_and_writes_scores() -> None:
    work = EvalWork(
        base_id="b",
        base_sha256=SHA,
        base_path="/b",
        prepared=no_rows(),
        max_length=1,
        seed=1,
        adapter=(blob("t/acme/adapters/a"),),
        measures=sealed("m"),
        benchmarks=(BENCHMARK,),
        scored=blob("t/acme/scores/s"),
    )
    assert needs_of(lease_of("eval"), work) == LeaseNeeds(
        reads=("t/acme/adapters/a", "t/acme/scores/s"),
        writes=("t/acme/scores/job1/3/",),
        texts=(NeededText(field="measures", sealed=sealed("m")),),
    )


def test_a_replica_reads_the_models_of_its_tenant() -> None:
    work = ServeWork(serving_pool_id="s", base_id="b", base_sha256=SHA, base_path="/b")
    assert needs_of(lease_of("serve"), work) == LeaseNeeds(reads=("t/acme/models/",))


def test_bases_f7_a_training_opens_its_own_template_and_end_tokens() -> None:
    chat = ChatFormat(sha256=SHA, template=sealed("t"), eot_tokens=sealed("e"))
    needs = needs_of(lease_of("train"), replace(WORK, chat=chat))
    assert needs.texts == (
        NeededText(field="chat_template", sealed=sealed("t")),
        NeededText(field="eot_tokens", sealed=sealed("e")),
    )
    alone = replace(chat, template=None)
    assert len(needs_of(lease_of("train"), replace(WORK, chat=alone)).texts) == 1
