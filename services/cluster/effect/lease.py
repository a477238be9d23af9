"""One lease in the cluster: creates its JobSet, follows it, reports its end where its pod cannot.

What the pod reports is passed on, in its order. Nothing is decided here: `pool` takes the first of
contradicting facts and refuses the rest.
"""

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from typing import Final

from schemas.pool import ClusterWait, ConfirmFreed, ReportExit, ReportStarted, ReportWait
from schemas.sealed import Sealed
from schemas.streams import agent_of
from schemas.training import AttemptOutcome, FailureCause, TrainWork
from schemas.units import Ms
from services.cluster.domain.link import (
    Fact,
    Orders,
    PodRefused,
    Pulse,
    SignedUrl,
    Telemetry,
    UrlRequest,
    Welcome,
    check_fact,
    check_telemetry,
    check_url,
)
from services.cluster.domain.manifests import (
    Flavor,
    LeaseRequest,
    PodTemplate,
    jobset_of,
    name_of,
    owned_of,
)
from services.cluster.domain.stages import (
    Admitted,
    Ended,
    LeaseObjects,
    Runs,
    Stage,
    Waits,
    stage_of,
)
from services.cluster.ports import (
    ClusterClient,
    ClusterRefused,
    ClusterUnavailable,
    PodServer,
    UrlSigner,
)
from services.trainer.domain.state import Grant, TargetState
from services.trainer.ports import Reporting
from tunery.runtime.clock import Clock
from tunery.runtime.tasks import run_again
from tunery.runtime.telemetry.logs import log_context, log_event

SILENT_MS: Final[Ms] = 10_000  # a living pod has sent a pulse by then
WAIT_MS: Final[Ms] = 10_000  # before a wait is reported, and between two reports of it
ENDED_MS: Final[Ms] = 5_000  # for an ended pod to report its end
ROUNDS_OF_DELETE: Final = 10  # looks at what is being deleted before it is deleted again
FACT_MS: Final[Ms] = 100  # between two commands of one pod, which all tenants' leases wait for
LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class LeaseTools:
    """Dependencies that all leases of one agent share."""

    cluster: ClusterClient
    server: PodServer
    signer: UrlSigner
    reports: Reporting
    clock: Clock
    template: PodTemplate
    flavor: Flavor
    incarnation: str
    encrypts: bool
    wait_ms_max: Ms  # how long Kueue may take to admit a lease before it is given back
    stuck_ms_max: Ms  # how long an admitted pod may not start before its node is blamed
    poll_ms: Ms  # time between two looks at the cluster


@dataclass(frozen=True)
class LeaseOutcome:
    """How a lease ended, if its pod has not reported it."""

    outcome: AttemptOutcome
    cause: FailureCause | None = None


class ClusterLease:
    """Implements `RunningLease` for the node agent, and `PodLink` for the lease's pod."""

    def __init__(self, grant: Grant, tools: LeaseTools) -> None:
        self._grant, self._tools = grant, tools
        self._request = LeaseRequest(
            agent=agent_of(grant.node_id),
            incarnation=tools.incarnation,
            pool=grant.token.pool,
            lease=grant.token.lease,
            job_id=grant.job_id,
            attempt=grant.attempt,
            lane=grant.lease.lane,
            slots=grant.slots,
            memory_bytes=grant.placement.memory_bytes,
        )
        self.name = name_of(self._request)
        self._target: TargetState = "run"
        self._sealed_keys = ""
        self._is_greeted = self._has_started = self._has_exited = False
        self._is_freed = asyncio.Event()  # by the pod's own word
        self._sending = asyncio.Lock()
        self._end: LeaseOutcome | None = None
        self._pulse, self._pulse_ms = Pulse(), 0
        self._stage: Stage = Waits("queue", "")
        self._stage_since_ms = 0
        self._wait: ClusterWait | None = None  # as it was reported
        self._wait_said_ms = 0

    @property
    def stage(self) -> Stage:
        """Last seen stage of the lease in the cluster."""
        return self._stage

    # --- RunningLease
    def set_target(self, target: TargetState) -> None:
        """Drain or kill. The pod gets the order in the answer to its next pulse."""
        self._target = target

    def take_keys(self, sealed_keys: str) -> None:
        """Keep the sealed keys for the pod, which alone can open them."""
        self._sealed_keys = sealed_keys

    def meet(self, rendezvous: Sealed) -> None:
        """Ignore it: a lease of several nodes has no member here."""

    @property
    def idle_ms(self) -> Ms:
        """Time since the last event of the process, plus the silence of the pod."""
        if not self._has_started:
            return 0
        return self._pulse.idle_ms + self._silent_ms

    @property
    def elapsed_ms(self) -> Ms:
        """Monotonic time since the process began to work, as the pod measured it last."""
        return self._pulse.elapsed_ms

    def prepared_bytes(self) -> int:
        return self._pulse.prepared_bytes

    async def run(self) -> None:
        """Work until the end, and report it however it ended."""
        grant = self._grant
        subject = {"job_id": grant.job_id, "attempt": grant.attempt, "lease": grant.token.lease}
        with log_context(tenant=grant.tenant, **subject):
            if self._end is None:
                try:
                    self._end = await self._follow()
                except Exception as error:  # any: without an end it would be billed to its limit
                    log_event(LOG, logging.ERROR, "lease.failed", error)
                    self._end = LeaseOutcome("failed", "platform")
            report = partial(self._report, self._end)
            await run_again(report, f"report of lease {grant.token.lease}")

    # --- PodLink
    def welcome(self) -> Welcome:
        """Return the lease once: a second request comes from a stolen certificate."""
        if self._is_greeted:
            raise PodRefused("the pod of this lease has begun before")
        self._is_greeted = True
        log_event(LOG, logging.INFO, "lease.pod_greeted", jobset=self.name)
        return Welcome(
            grant=self._grant,
            incarnation=self._tools.incarnation,
            encrypts=self._tools.encrypts,
            threads=self._grant.slots * self._tools.template.cpus_per_slot,
        )

    def pulse(self, pulse: Pulse) -> Orders:
        self._pulse, self._pulse_ms = pulse, self._tools.clock.monotonic_ms()
        return Orders(target=self._target, sealed_keys=self._sealed_keys)

    async def fact(self, fact: Fact) -> None:
        """Pass on a report of the pod, but for freed slots: the agent reports those itself."""
        check_fact(self._grant, self._tools.incarnation, fact)
        async with self._sending:
            if isinstance(fact, ConfirmFreed):
                self._is_freed.set()
                return
            await self._tools.reports.fact(fact, self._grant.tenant)
            # Said is what is in the log: the agent reports the rest in the pod's place.
            self._has_started |= isinstance(fact, ReportStarted)
            self._has_exited |= isinstance(fact, ReportExit)
            await self._tools.clock.sleep(FACT_MS)

    async def telemetry(self, record: Telemetry) -> None:
        check_telemetry(self._grant, record)
        await self._tools.reports.telemetry(record)

    async def url(self, request: UrlRequest) -> SignedUrl:
        check_url(self._grant, request)
        return await self._tools.signer.sign(request)

    # --- its life
    @property
    def _silent_ms(self) -> Ms:
        return self._tools.clock.monotonic_ms() - self._pulse_ms if self._pulse_ms else 0

    async def _follow(self) -> LeaseOutcome:
        """Follow the JobSet to its end; return the report if the pod has sent none."""
        if (why := refusal_of(self._grant)) is not None:
            log_event(LOG, logging.ERROR, "lease.refused", why=why)
            return LeaseOutcome("failed", "bad_node")
        files = self._tools.server.admit(self.name, self)
        manifest = jobset_of(self._request, self._tools.template, self._tools.flavor)
        policy, secret = owned_of(self._request, self._tools.flavor, files)
        self._stage_since_ms = self._wait_said_ms = self._tools.clock.monotonic_ms()
        has_created = False
        while True:
            if self._is_freed.is_set():
                return LeaseOutcome("failed", "platform")  # reported unless the pod has done so
            if self._target != "run" and not self._is_greeted:
                return LeaseOutcome("not_started")
            if self._target == "kill":
                return LeaseOutcome("preempted")
            try:
                if not has_created:
                    await self._tools.cluster.create(manifest, policy, secret)
                    has_created = True
                    log_event(LOG, logging.INFO, "lease.jobset_created", jobset=self.name)
                objects = (await self._tools.cluster.look()).get(self.name, LeaseObjects())
            except ClusterUnavailable as error:
                # Silence is not death: what runs goes on, and tells this agent so.
                log_event(LOG, logging.WARNING, "cluster.unavailable", why=error)
            except ClusterRefused as error:
                log_event(LOG, logging.ERROR, "lease.refused", why=error)
                if not has_created:
                    return LeaseOutcome("failed", "bad_node")
                # An API server that starts refuses what it allows a moment later.
            else:
                self._note(stage_of(objects))
                await self._report_wait()
                if outcome := await self._outcome():
                    return outcome
            await self._pause()

    async def _pause(self) -> None:
        sleeping = asyncio.create_task(self._tools.clock.sleep(self._tools.poll_ms))
        freed = asyncio.create_task(self._is_freed.wait())
        try:
            await asyncio.wait((sleeping, freed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            freed.cancel()

    def _note(self, stage: Stage) -> None:
        if stage == self._stage:
            return
        before = self._stage
        if isinstance(stage, Admitted) and isinstance(before, Admitted):
            is_same = bool(stage.stuck) == bool(before.stuck)  # the kubelet's words may change
        else:
            is_same = type(stage) is type(before)
        if not is_same:
            self._stage_since_ms = self._tools.clock.monotonic_ms()
        self._stage = stage
        log_event(LOG, logging.INFO, "lease.stage", jobset=self.name, stage=stage)

    async def _report_wait(self) -> None:
        """Report why Kueue has not admitted the lease, after a while, and when it has."""
        now_ms, wait = self._tools.clock.monotonic_ms(), None
        if isinstance(self._stage, Ended):
            return
        if isinstance(self._stage, Waits):
            wait = ClusterWait(cause=self._stage.cause, condition=self._stage.words)
            if now_ms - self._wait_said_ms < WAIT_MS:
                return
        if wait == self._wait:
            return
        token, incarnation = self._grant.token, self._tools.incarnation
        report = ReportWait(token=token, incarnation=incarnation, wait=wait)
        await self._tools.reports.fact(report, self._grant.tenant)
        self._wait, self._wait_said_ms = wait, now_ms

    async def _outcome(self) -> LeaseOutcome | None:
        """Return how the lease ends at its present stage; None: it continues."""
        lasted_ms = self._tools.clock.monotonic_ms() - self._stage_since_ms
        match self._stage:
            case Waits() if lasted_ms > self._tools.wait_ms_max:
                return LeaseOutcome("not_started")
            case Admitted(stuck=stuck) if stuck and lasted_ms > self._tools.stuck_ms_max:
                return LeaseOutcome("failed", "bad_node")
            case Ended(cause="evicted") if not self._is_greeted:
                return LeaseOutcome("not_started")
            case Ended(cause="oom"):
                return LeaseOutcome("failed", "oom")
            case Ended(cause=cause):
                # It may still be writing its checkpoint, or saying how it ended.
                if self._pulse_ms and self._silent_ms < SILENT_MS:
                    return None
                if not self._pulse_ms and lasted_ms < ENDED_MS:
                    return None
                if cause == "evicted":
                    return LeaseOutcome("preempted")
                return LeaseOutcome("failed", "bad_node" if cause == "lost" else "platform")
            case Waits() | Admitted() | Runs():
                return None

    async def _report(self, outcome: LeaseOutcome) -> None:
        """Report the end, and that the slots are free once no pod of the lease is left."""
        grant, tools = self._grant, self._tools
        if not self._has_exited:
            log_event(LOG, logging.WARNING, "lease.ended_silently", stage=self._stage)
            report = ReportExit(
                token=grant.token,
                incarnation=tools.incarnation,
                outcome=outcome.outcome,
                elapsed_ms=self.elapsed_ms,
                cause=outcome.cause,
            )
            await tools.reports.fact(report, grant.tenant)
            self._has_exited = True  # later reports of the pod are too late
        tools.server.dismiss(self.name)
        await self._remove()
        freed = ConfirmFreed(
            token=grant.token, node_id=grant.node_id, incarnation=tools.incarnation
        )
        await tools.reports.fact(freed, grant.tenant)

    async def _remove(self) -> None:
        """Delete the JobSet, and return when no pod of it is left."""
        clock, rounds = self._tools.clock, 0
        forced_ms = clock.monotonic_ms() + self._tools.template.grace_s * 1_000 + SILENT_MS
        while True:
            # What is left after its grace period is on a node that does not answer.
            is_forced = self._target == "kill" or clock.monotonic_ms() > forced_ms
            grace_s = 0 if is_forced else None
            try:
                if rounds % ROUNDS_OF_DELETE == 0:
                    await self._tools.cluster.delete(self.name, grace_s=grace_s)
                rounds += 1  # not where it failed
                objects = (await self._tools.cluster.look()).get(self.name)
                if objects is None or (objects.jobset is None and not objects.pods):
                    return
            except Exception as error:  # any: its slots are not free before its pods are gone
                log_event(LOG, logging.WARNING, "lease.not_removed", why=repr(error))
            await self._tools.clock.sleep(self._tools.poll_ms)


def refusal_of(grant: Grant) -> str | None:
    """Return why no pod can run this work; None: one can. Other nodes of the pool then get it."""
    if grant.role == "serve":
        return "pods do not serve"
    if isinstance(grant.work, TrainWork) and grant.work.takes_commands:
        return "pods cannot read the commands of a session"
    return None
