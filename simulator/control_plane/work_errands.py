"""Errands of tenants, of the gate, of the watcher and of nodes, in the form of `errands.py`."""

import asyncio
from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from schemas.account import ResumeTenant, SuspendTenant
from schemas.anomaly import Anomaly, AnomalyKind, RecordAnomaly
from schemas.enrolment import EnrolNode, InviteNode, NodeEnrolled, RevokeInvitation
from schemas.integrations import MirrorReport, RecordMirror
from schemas.job import CancelJob, PauseJob
from schemas.node import (
    CordonNode,
    DeviceFault,
    DrainNode,
    ForgetNode,
    ReportDeviceFaults,
    UncordonNode,
    WarnNode,
    WithdrawNodeKeys,
)
from schemas.reasons import DeviceFaultCode, device_fault
from schemas.submission import Budget, EvaluationTerms
from schemas.sweep import CancelSweep, SubmitSweep, SweepRun, SweepTerms
from schemas.training import AdapterStart, NodeConstraints
from schemas.units import HOUR_MS
from simulator.control_plane.samples import FILE, HYPER, PREPARED, file_of, spec, tokens
from simulator.control_plane.tenants import TOKENS_PER_SLOT, SimTenant
from simulator.engine.sim_log import insist
from tunery.plan.estimate import estimate

if TYPE_CHECKING:
    from simulator.control_plane.errands import SimWorld

SWEPT_FIRST = 1_000  # number of the first job of a sweep
OTHERS_FIRST = 500  # of the jobs of other errands


# --- jobs -----------------------------------------------------------------------------------------


async def sweep(world: "SimWorld", rng: Random) -> None:
    """A sweep, with or without rungs and a budget, that may be cancelled."""
    tenant = rng.choice(world.tenants)
    rungs, trials = rng.choice((1, 1, 2)), rng.randint(2, 3)
    runs = [
        tuple(_run(SWEPT_FIRST + trial * rungs + rung) for rung in range(rungs))
        for trial in range(trials)
    ]
    asked, count, budget = spec(price=tenant.price, slots=1), tokens(TOKENS_PER_SLOT), None
    if rng.random() < 0.4:  # for one to three holds, or for one job alone
        holds_percent = rng.randint(100, 300)
        if holds_percent < 200:
            holds_percent = 100
        most = holds_percent * estimate(asked, count).price_max_micro // 100
        budget = Budget(max_amount_micro=most)
    terms = SweepTerms(
        sweep_id=f"sweep-{tenant.name}",
        method="grid" if rungs == 1 else "halving",
        spec=asked,
        trials=tuple(runs),
        tokens=count,
        survivors=(1,) * (rungs - 1),
        at_once=rng.randint(1, 2),
        budget=budget,
    )
    refusal = await tenant.ask("job", SubmitSweep(terms=terms))
    if refusal is None:
        world.context.broker.tally.add("sweep submitted")
        for job_id in sorted(tenant.jobs)[: rng.randint(0, 3)]:
            await world.wait(rng)
            await tenant.ask("job", PauseJob(job_id=job_id))
    if rng.random() < 0.4:
        await tenant.ask("account", SuspendTenant())
        await asyncio.sleep(rng.uniform(10, 40))
        await tenant.ask("account", ResumeTenant())
    if rng.random() < 0.5:
        await world.wait(rng)
        await tenant.ask("job", CancelSweep(sweep_id=terms.sweep_id))


def _run(number: int) -> SweepRun:
    hyper = replace(HYPER, seed=number)
    return SweepRun(job_id=f"ftjob-{number}", model_id=f"ft:smol:{number}", hyper=hyper)


async def take_looks(world: "SimWorld", _: Random) -> None:
    """Jobs whose gate may decide before all items are asked."""
    for number, tenant in enumerate(world.tenants, OTHERS_FIRST + 2):
        await _submit(tenant, number, looks_ppm=(250_000, 500_000, 1_000_000))


async def judge_again(world: "SimWorld", rng: Random) -> None:
    """A job that trains nothing: the gate judges a version again."""
    tenant = rng.choice(world.tenants)
    start = AdapterStart(model_id="ft:smol:old", sha256=FILE.sha256, files=(file_of(tenant.name),))
    terms = EvaluationTerms(imported=False, prepared=PREPARED)
    await _submit(
        tenant, OTHERS_FIRST + 1, start=start, evaluation=terms, training_file="", model_id="ft:old"
    )


async def report_on_jobs(world: "SimWorld", rng: Random) -> None:
    """Anomalies and mirrored figures of whatever runs, some of them reported twice."""
    port, sender_as = world.context.port("reporters")
    for number in range(rng.randint(3, 6)):
        await world.wait(rng)
        tenant = rng.choice(world.tenants)
        job_id = rng.choice(sorted(tenant.jobs) or ["ftjob-0"])
        kind: AnomalyKind = rng.choice(("loss_spike", "stuck"))
        anomaly = Anomaly(
            kind=kind, attempt=rng.randint(1, 2), window=number // 2, measured_ppm=2, usual_ppm=1
        )
        report = MirrorReport(kind="mlflow", status=rng.choice(("failing", "written")))
        for sender, body in (
            *(("watcher", RecordAnomaly(job_id=job_id, anomaly=anomaly)),) * rng.randint(1, 2),
            ("notifier", RecordMirror(job_id=job_id, report=report)),
        ):
            await insist(port, sender_as(sender), "job", tenant.name, body)
    for tenant in world.tenants:  # also of jobs that have ended, and of another tenant's
        for number in range(world.context.plan.jobs):
            late = RecordMirror(
                job_id=f"ftjob-{number}", report=MirrorReport(kind="mlflow", status="written")
            )
            await insist(port, sender_as("notifier"), "job", tenant.name, late)


async def demand_nodes(world: "SimWorld", rng: Random) -> None:
    """Jobs that ask for a domain, or for spot nodes and an early end."""
    tenant = rng.choice(world.tenants)
    now = tenant.port.now_ms()
    near = NodeConstraints(domain=rng.choice(("east", "west")), domain_wait_ms=5_000)
    soon = NodeConstraints(spot=True, finish_by=now + rng.choice((30_000, 120_000, HOUR_MS)))
    for number, constraints in enumerate((near, soon), OTHERS_FIRST + 10):
        await _submit(tenant, number, constraints=constraints)
    await world.wait(rng)
    if rng.random() < 0.2:
        await tenant.ask("job", CancelJob(job_id=f"ftjob-{OTHERS_FIRST + 10}"))


async def _submit(tenant: SimTenant, number: int, **changes: Any) -> None:
    await tenant.submit_as(f"ftjob-{number}", TOKENS_PER_SLOT + 1_000, **changes)


# --- nodes ----------------------------------------------------------------------------------------


async def order_nodes(world: "SimWorld", rng: Random) -> None:
    """Operators cordon, drain, uncordon and forget nodes; in the end all are in service."""
    nodes = [machine.node_id for machine in world.machines]
    orders = (CordonNode, CordonNode, DrainNode, UncordonNode, ForgetNode, ForgetNode)
    for _ in range(rng.randint(4, 8)):
        await world.wait(rng)
        down = [machine.node_id for machine in world.machines if machine.agent is None]
        order = rng.choice(orders)
        await world.order(
            order(node_id=rng.choice(down if order is ForgetNode and down else nodes))
        )
    for node_id in nodes:
        await world.order(UncordonNode(node_id=node_id))


async def break_devices(world: "SimWorld", rng: Random) -> None:
    """Agents report faults of devices, and later that they are gone; one is warned."""
    for _ in range(rng.randint(2, 4)):
        await world.wait(rng)
        agent = rng.choice(world.machines).agent
        if agent is None:
            continue
        node = agent.agent.node
        code: DeviceFaultCode = rng.choice(("ecc", "throttled"))
        fault = DeviceFault(device=rng.randrange(node.slots), reason=device_fault(code))
        faults = rng.choice(((fault,), (fault,), ()))
        agent.tell(
            ReportDeviceFaults(node_id=node.node_id, incarnation=node.incarnation, faults=faults)
        )
        if rng.random() < 0.4:
            for _ in range(2):  # as its cloud does, more than once
                agent.tell(WarnNode(node_id=node.node_id, incarnation=node.incarnation))
    for machine in world.machines:
        if (agent := machine.agent) is not None:
            node = agent.agent.node
            agent.tell(
                ReportDeviceFaults(node_id=node.node_id, incarnation=node.incarnation, faults=())
            )


async def withdraw_keys(world: "SimWorld", rng: Random) -> None:
    """The keys of a machine are in wrong hands; it gets others for a token, which is used once."""
    machine = rng.choice(world.machines)
    node_id = machine.node_id
    await world.wait(rng)
    await world.order(WithdrawNodeKeys(node_id=node_id))
    token, key = _hash(f"token of {node_id}"), _hash(f"key of {node_id}")
    for valid_ms, shown, public_key in (
        (HOUR_MS, _hash("guessed"), key),
        (1_000, token, key),
        (HOUR_MS, token, key),
        (HOUR_MS, token, _hash("of a thief")),
    ):
        if public_key == key:
            await world.order(InviteNode(node_id=node_id, token_sha256=token, valid_ms=valid_ms))
        await asyncio.sleep(2)
        enrol = EnrolNode(node_id=node_id, token_sha256=shown, public_key=public_key)
        for event in await world.order(enrol):
            if isinstance(event, NodeEnrolled):
                machine.key_number = event.key_number
    await machine.lose_agent()
    await _invite_several(world, node_id)


async def _invite_several(world: "SimWorld", name: str) -> None:
    """A token for two machines is shown by three, and by one more after it was revoked."""
    token = _hash(f"token of several {name}")
    await world.order(InviteNode(node_id=name, token_sha256=token, valid_ms=HOUR_MS, uses=2))
    for number in range(4):
        if number == 3:
            await world.order(RevokeInvitation(node_id=name))
        node_id = f"{name}-{number}"
        key = _hash(f"key of {node_id}")
        await world.order(
            EnrolNode(node_id=node_id, token_sha256=token, public_key=key, invitation=name)
        )


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()
