"""An independent account of sweeps, of what is reported of jobs, and of jobs that are erased."""

from dataclasses import dataclass, field
from typing import Any

from schemas.anomaly import AnomalyRecorded
from schemas.envelope import Rejected, Repeated
from schemas.erasure import JobsClosed, JobsErased
from schemas.gate import GateRunEnded, LookTaken
from schemas.integrations import MirrorReported, RecordMirror
from schemas.job import HoldTaken, JobEnded, JobSubmitted, RegistrationWanted, VerdictRecorded
from schemas.model import ScoreSummary
from schemas.sweep import (
    SweepCancelled,
    SweepEnded,
    SweepRungBegun,
    SweepRunSkipped,
    SweepSubmitted,
    SweepTerms,
)
from schemas.units import Micro, Ms
from simulator.control_plane.quota_books import Quota, TenantBook
from tunery.plan.estimate import estimate


@dataclass
class SweepBook:
    """A sweep that is open. open: jobs by what they may cost; ended: by what they have cost."""

    terms: SweepTerms
    open: dict[str, Micro] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)
    rung: int = 0
    trials: tuple[int, ...] = ()
    cancelled: bool = False

    @property
    def pending(self) -> list[str]:
        """Jobs of this rung that are to come, in their order."""
        known = {*self.open, *self.ended, *self.skipped}
        runs = (self.terms.trials[trial][self.rung].job_id for trial in self.trials)
        return [] if self.cancelled else [job_id for job_id in runs if job_id not in known]


@dataclass
class SweepBooks:
    """Entered after the same decision is in `quota`; `violations` is what did not hold."""

    quota: Quota
    violations: list[str] = field(default_factory=list)
    _sweeps: dict[tuple[str, str], SweepBook] = field(default_factory=dict)  # tenant, sweep
    _owners: dict[str, SweepBook] = field(default_factory=dict)  # by job
    _anomalies: set[tuple[str, str]] = field(default_factory=set)
    _looks: dict[str, int] = field(default_factory=dict)
    _verdicts: dict[str, ScoreSummary] = field(default_factory=dict)
    _closed: set[str] = field(default_factory=set)

    def enter(self, tenant: str, command: Any, events: tuple[Any, ...], at: Ms) -> None:
        """One decision of `job`."""
        if isinstance(command, RecordMirror):
            self._mirror(tenant, command, events)
        for event in events:
            self._enter(tenant, event)
        for (owner, sweep_id), sweep in self._sweeps.items():
            if owner == tenant and self._could_go_on(sweep, self.quota.tenants[tenant], at):
                self._say("stuck", f"{sweep_id} waits at {at}, with room for {sweep.pending[0]}")

    def _enter(self, tenant: str, event: Any) -> None:
        match event:
            case SweepSubmitted(terms=terms):
                sweep = SweepBook(terms, trials=tuple(range(len(terms.trials))))
                self._sweeps[tenant, terms.sweep_id] = sweep
            case SweepRunSkipped():
                self._sweeps[tenant, event.sweep_id].skipped.add(event.job_id)
            case SweepCancelled():
                self._sweeps[tenant, event.sweep_id].cancelled = True
            case SweepRungBegun():
                self._begin_rung(self._sweeps[tenant, event.sweep_id], event)
            case SweepEnded():
                sweep = self._sweeps.pop((tenant, event.sweep_id))
                if sweep.open or (sweep.pending and event.outcome != "stopped"):
                    self._say("sweep", f"{event} with {sweep.open} open, {sweep.pending} to come")
            case JobSubmitted():
                self._submit(tenant, event)
            case HoldTaken() if event.job_id in self._owners:
                self._hold(self._owners[event.job_id], event)
            case JobEnded() if event.job_id in self._owners:
                sweep = self._owners.pop(event.job_id)
                del sweep.open[event.job_id]
                sweep.ended.add(event.job_id)
            case AnomalyRecorded():
                if (event.job_id, event.anomaly.key) in self._anomalies:
                    self._say("anomaly", f"{event} is recorded twice")
                self._anomalies.add((event.job_id, event.anomaly.key))
            case LookTaken():
                if event.look != self._looks.get(event.job_id, 0) + 1:
                    self._say("look", f"{event} follows look {self._looks.get(event.job_id, 0)}")
                self._looks[event.job_id] = event.look
            case VerdictRecorded():
                self._verdicts[event.job_id] = event.summary
            case RegistrationWanted() | GateRunEnded():
                self._judged(tenant, event)
            case JobsClosed():
                self._closed.add(tenant)
            case JobsErased():
                book = self.quota.tenants[tenant]
                if tenant not in self._closed or book.specs or book.terms_open:
                    self._say(
                        "erasure", f"jobs of {tenant} are gone with {sorted(book.specs)} open"
                    )
            case _:
                pass

    def _submit(self, tenant: str, event: JobSubmitted) -> None:
        if tenant in self._closed:
            self._say("erasure", f"{event.job_id} is submitted for {tenant}, which is erased")
        if event.spec.sweep_id is None:
            return
        sweep = self._sweeps[tenant, event.spec.sweep_id]
        if event.job_id not in sweep.pending:
            self._say("sweep", f"{event.job_id} is submitted, to come are {sweep.pending}")
        sweep.open[event.job_id] = 0
        self._owners[event.job_id] = sweep
        if len(sweep.open) > sweep.terms.at_once:
            self._say("sweep", f"{[*sweep.open]} run at once, not {sweep.terms.at_once}")

    def _hold(self, sweep: SweepBook, event: HoldTaken) -> None:
        """Check that costs of ended jobs and holds of open ones stay within the sweep's budget."""
        sweep.open[event.job_id] = event.estimate.price_max_micro
        budget, charges = sweep.terms.budget, self.quota.charges
        spent = sum(charges[job_id].cost() for job_id in sweep.ended)
        most = None if budget is None else budget.max_amount_micro
        if most is not None and spent + sum(sweep.open.values()) > most:
            self._say("sweep", f"{event.job_id} makes it {spent} and {sweep.open} of {most}")

    def _begin_rung(self, sweep: SweepBook, event: SweepRungBegun) -> None:
        if sweep.pending or sweep.open:
            self._say("sweep", f"{event} with {sweep.open} open, {sweep.pending} to come")
        best = sweep.terms.survivors[sweep.rung]
        if not {*event.trials} <= {*sweep.trials} or not 0 < len(event.trials) <= best:
            self._say("sweep", f"{event} goes on with {event.trials} of {sweep.trials}")
        sweep.rung, sweep.trials = event.rung, event.trials

    def _mirror(self, tenant: str, command: RecordMirror, events: tuple[Any, ...]) -> None:
        """Check that a report on a known job's mirror, open or ended, is recorded unchanged."""
        said = MirrorReported(job_id=command.job_id, report=command.report)
        is_known = command.job_id in self.quota.tenants[tenant].charges
        if any(isinstance(event, Rejected | Repeated) for event in events):
            return
        if tenant not in self._closed and [*events][:1] != ([said] if is_known else []):
            self._say("mirror", f"{command} of {tenant} leads to {events}")

    def _judged(self, tenant: str, event: RegistrationWanted | GateRunEnded) -> None:
        """A version is published by the job that trained it, and only judged again by another."""
        spec, summary = self.quota.tenants[tenant].specs[event.job_id], self._verdicts[event.job_id]
        trains = spec.evaluation is None or spec.evaluation.imported
        if isinstance(event, RegistrationWanted):
            if not trains:
                self._say("gate run", f"{event.job_id} trains nothing, and publishes {event.terms}")
        elif trains or (event.run.model_id, event.run.verdict) != (spec.model_id, summary.verdict):
            self._say("gate run", f"{event.run} is of {spec.model_id}, judged {summary.verdict}")

    def _could_go_on(self, sweep: SweepBook, book: TenantBook, at: Ms) -> bool:
        """True if a job is pending and no limit known to this book prevents its start."""
        terms, plan = sweep.terms, book.terms
        if not sweep.pending or len(sweep.open) >= terms.at_once or book.suspended or plan is None:
            return False
        if terms.budget is not None or book.budget is not None or terms.cap is not None:
            return False
        if (plan.price_version, plan.lane) != (terms.spec.price.version, terms.spec.price.lane):
            return False
        hold = estimate(terms.spec, terms.tokens).hold_gpu_ms
        if book.window(at) + hold > plan.limits.hard_gpu_ms:
            return False
        return book.running < plan.limits.concurrency

    def _say(self, invariant: str, text: str) -> None:
        self.violations.append(f"{invariant}: {text}")
