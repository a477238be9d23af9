"""An independent account of base models and versions, entered decision by decision.

Written from the invariants of registry's README; nothing here asks its decider.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from schemas import deployments, gate, lifetime, model
from schemas.envelope import Rejected, Repeated, Tick
from schemas.erasure import EraseModels, ModelsErased
from schemas.units import DAY_MS, Ms
from simulator.artifacts.share_books import (
    cannot_deploy,
    cannot_promote,
    cannot_roll_back,
    enter_deployment,
    enter_stage,
    enter_traffic,
)
from simulator.artifacts.version_books import HELD, Bases, BookVersion, VersionsOfTenant

GRACE_MS: Final = 30 * DAY_MS
Book = VersionsOfTenant


def _is_used(book: Book, version: BookVersion) -> bool:
    name = version.terms.model_id
    children = (other.terms.lineage.start_id for other in book.versions.values())
    in_use = name in children or name in book.kept.values() or book.has_share(name)
    return in_use or version.stage in HELD or not version.published


def _cannot_delete(_: Bases, book: Book, c: model.DeleteVersion) -> bool:
    version = book.versions.get(c.model_id)
    if version is None:
        return not (c.erase and c.model_id in book.deleted)
    return _is_used(book, version)


def _cannot_restore(_: Bases, book: Book, c: lifetime.RestoreVersion) -> bool:
    if c.model_id in book.versions:
        return False
    deleted = book.deleted.get(c.model_id)
    return deleted is None or deleted.terms.lineage.start_id in book.deleted


def _cannot_approve(_: Bases, book: Book, c: model.ApproveVersion) -> bool:
    version, key = book.versions.get(c.model_id), c.approval.key_id
    if version is None or not version.published or version.quarantined:
        return True
    rule = book.rules.get(c.approval.stage)
    may = rule is None or not rule.approvers or key in rule.approvers
    return key == version.terms.author or not may


def _cannot_rule(_: Bases, __: Book, c: model.SetApprovalRule) -> bool:
    approvers = {*c.rule.approvers}
    return bool(approvers) and c.rule.required > len(approvers)


def _cannot_quarantine(_: Bases, book: Book, c: gate.SetQuarantine) -> bool:
    version, wanted = book.versions.get(c.decision.model_id), c.decision.quarantined
    if version is None or not version.published:
        return True
    if (version.quarantined, version.held_back) == (wanted, wanted):
        return False
    if not wanted:
        return version.unusable
    return version.stage in HELD or book.has_share(version.terms.model_id)


def _cannot_add_base(bases: Bases, _: Book, c: model.AddBase) -> bool:
    known = bases.bases.get(c.base.base_id)
    return known is not None and known.sha256 != c.base.sha256


def _cannot_remove_benchmark(bases: Bases, _: Book, c: gate.RemoveBenchmark) -> bool:
    """No policy that is in force may name what is gone."""
    policies = (p for book in bases.tenants.values() for p in book.policies.values())
    return c.name in bases.benchmarks and any(c.name in policy.benchmarks for policy in policies)


def _cannot_add_benchmark(bases: Bases, _: Book, c: gate.AddBenchmark) -> bool:
    return bases.benchmarks.get(c.benchmark.name, c.benchmark.sha256) != c.benchmark.sha256


#: Whether a request is refused.
REFUSED: Final[Mapping[type, Callable[[Bases, Book, Any], bool]]] = {
    model.Promote: cannot_promote,
    model.RollBack: cannot_roll_back,
    deployments.Deploy: cannot_deploy,
    model.DeleteVersion: _cannot_delete,
    lifetime.RestoreVersion: _cannot_restore,
    model.ApproveVersion: _cannot_approve,
    model.SetApprovalRule: _cannot_rule,
    gate.SetQuarantine: _cannot_quarantine,
    gate.SetGatePolicy: lambda *_: False,
    model.ShareCheckpoint: lambda *_: False,
    model.UnshareCheckpoint: lambda _, book, c: c.permission_id not in book.shared,
    model.AddBase: _cannot_add_base,
    model.RecordBaseBytes: lambda bases, _, c: c.base_id not in bases.bases,
    gate.AddBenchmark: _cannot_add_benchmark,
    gate.RemoveBenchmark: _cannot_remove_benchmark,
}


@dataclass
class ModelBooks:
    """Entered decision by decision. `is_good`: whether an adapter may be published, by its job."""

    is_good: Callable[[str], bool]
    tenants: dict[str, Book] = field(default_factory=lambda: defaultdict(Book))
    bases: dict[int, Bases] = field(default_factory=lambda: defaultdict(Bases))
    violations: list[str] = field(default_factory=list)
    reports: Counter[str] = field(default_factory=Counter)  # what jobs must hear of, how often
    forgotten: set[str] = field(default_factory=set)  # versions that may leave bytes

    def enter(
        self, partition: int, tenant: str, command: Any, events: tuple[Any, ...], at: Ms
    ) -> None:
        """One decision of `model`."""
        if any(isinstance(event, Repeated) for event in events):
            return
        bases, book = self.bases[partition], self.tenants[tenant]
        bases.tenants[tenant] = book
        refused = any(isinstance(event, Rejected) for event in events)
        if type(command) in REFUSED and refused != self._is_due(bases, book, command):
            self._add("refusal", tenant, f"{command} was {'' if refused else 'not '}refused")
        if isinstance(command, deployments.CountTraffic) and not book.erased:
            counted = (e for e in events if isinstance(e, deployments.TrafficCounted))
            for name, what in enter_traffic(book, command, next(counted, None)):
                self._add(name, tenant, what)
        for event in events:
            for name, what in self._enter(bases, book, command, event, at):
                self._add(name, tenant, what)

    def _is_due(self, bases: Bases, book: Book, command: Any) -> bool:
        if book.erased:
            return not isinstance(command, model.UnshareCheckpoint)
        return REFUSED[type(command)](bases, book, command)

    def _add(self, name: str, tenant: str, what: str) -> None:
        self.violations.append(f"{name}: {tenant}: {what}")

    def _enter(
        self, bases: Bases, book: Book, command: Any, event: Any, at: Ms
    ) -> Iterator[tuple[str, str]]:
        match event:
            case model.BaseAdded():
                known = bases.bases.get(event.base.base_id, event.base)
                if known.sha256 != event.base.sha256:
                    yield "base", f"{event.base.base_id} has other bytes"
                bases.bases[event.base.base_id] = event.base
                bases.drifted.pop(event.base.base_id, None)
            case model.BaseDrifted():
                bases.drifted[event.base_id] = event.sha256
            case model.BaseRestored():
                bases.drifted.pop(event.base_id, None)
            case gate.BenchmarkAdded():
                bases.benchmarks[event.benchmark.name] = event.benchmark.sha256
            case gate.BenchmarkRemoved():
                del bases.benchmarks[event.name]
            case model.BasePinned() | model.BaseRefused():
                yield from self._pin(bases, command, event)
            case model.StageMoved():
                asked = isinstance(command, model.Promote | deployments.Deploy)
                yield from enter_stage(bases, book, event, asked)
            case deployments.Deployed():
                yield from enter_deployment(book, command.deployment, event)
            case _:
                yield from self._enter_version(book, command, event, at)

    def _pin(
        self, bases: Bases, command: Any, event: model.BasePinned | model.BaseRefused
    ) -> Iterator[tuple[str, str]]:
        """A job gets the bytes that it was submitted with, or no base."""
        self.reports[f"base {event.job_id}"] += 1
        if not isinstance(command, model.PinBase):
            return
        base = bases.bases.get(command.base_id)
        there = base is not None and command.base_sha256 in (
            base.sha256,
            bases.drifted.get(command.base_id),
        )
        if isinstance(event, model.BaseRefused) == there:
            yield "base", f"{command} led to {event}"
        elif isinstance(event, model.BasePinned) and event.base.sha256 != command.base_sha256:
            yield "base", f"{command} was given {event.base.sha256}"

    def _enter_version(
        self, book: Book, command: Any, event: Any, at: Ms
    ) -> Iterator[tuple[str, str]]:
        match event:
            case model.VersionSubmitted():
                name, lineage = event.terms.model_id, event.terms.lineage
                if name in book.versions or name in book.deleted:
                    yield "publication", f"{name} is there already"
                book.versions[name] = BookVersion(
                    event.terms, event.adapter, lineage.base_sha256, lineage.unusable
                )
            case model.VersionPublished() | model.VersionFailed():
                yield from self._publish(book, event)
            case gate.VersionGated():
                yield from self._gate(book, event)
            case gate.QuarantineSet():
                version = book.versions[event.decision.model_id]
                version.quarantined = version.held_back = event.decision.quarantined
                if version.unusable and not version.quarantined:
                    yield "quarantine", f"{event.decision.model_id} is unusable and free"
            case model.ApprovalRuleSet():
                book.rules[event.rule.stage] = event.rule
            case model.VersionApproved():
                book.versions[event.model_id].approvals.add(event.approval)
            case gate.GatePolicySet(policy=None):
                book.policies.pop(event.base_id, None)
            case gate.GatePolicySet(policy=gate.GatePolicy() as policy):
                book.policies[event.base_id] = policy
            case model.CheckpointShared():
                permission = event.checkpoint_id, event.share.project_id
                if permission in book.shared.values():
                    yield "permission", f"{permission} was given twice"
                book.shared[event.share.permission_id] = permission
            case model.CheckpointUnshared():
                del book.shared[event.share.permission_id]
            case _:
                yield from self._enter_lifetime(book, command, event, at)

    def _publish(
        self, book: Book, event: model.VersionPublished | model.VersionFailed
    ) -> Iterator[tuple[str, str]]:
        if isinstance(event, model.VersionFailed):
            self.reports[f"version {event.job_id}"] += 1
            known = book.versions.get(event.model_id)
            if known is None or known.terms.lineage.job_id != event.job_id:
                return  # another job's version, or none that is still there
            if known.published:
                yield "publication", f"{event.model_id} failed after it was published"
            del book.versions[event.model_id]
            self.forgotten.add(event.model_id)
            return
        terms = event.terms
        self.reports[f"version {terms.lineage.job_id}"] += 1
        version = book.versions[terms.model_id]
        if version.published or not self.is_good(terms.lineage.job_id):
            yield "publication", f"{terms.model_id} was published again, or is no adapter"
        judged = {file.name: file.sha256 for file in version.adapter}
        files = {file.name: file.sha256 for file in event.files}
        if judged.items() - files.items():
            yield "publication", f"{terms.model_id} has other bytes than the gate judged"
        if event.quarantined != (terms.lineage.verdict == "block"):
            yield "quarantine", f"{terms.model_id} is {event.quarantined} after the gate"
        version.published, version.files = True, event.files
        version.quarantined = event.quarantined

    def _gate(self, book: Book, event: gate.VersionGated) -> Iterator[tuple[str, str]]:
        """The newest verdict counts, but what a person put into quarantine stays there."""
        self.reports[f"version {event.run.job_id}"] += 1
        version, run = book.versions[event.run.model_id], event.run
        if not version.published:
            yield "verdict", f"{run.job_id} judged {run.model_id} before its publication"
        if version.gated_by == run.job_id:
            yield "verdict", f"{run.job_id} judged {run.model_id} twice"
        if event.quarantined != (run.verdict == "block" or version.held_back):
            yield "quarantine", f"{run.model_id} is {event.quarantined} after {run.verdict}"
        version.quarantined, version.gated_by = event.quarantined, run.job_id
        version.base_sha256, version.unusable = run.base_sha256, run.unusable

    def _enter_lifetime(
        self, book: Book, command: Any, event: Any, at: Ms
    ) -> Iterator[tuple[str, str]]:
        match event:
            case model.VersionDeleted():
                version = book.versions.pop(event.model_id)
                if _is_used(book, version):
                    yield "in use", f"{event.model_id} was deleted"
                version.erase_at = None if command.erase else at + GRACE_MS
                if event.erase_at != version.erase_at:
                    yield "lifetime", f"{event.model_id} goes at {event.erase_at}"
                if not command.erase:
                    book.deleted[event.model_id] = version
            case lifetime.VersionErased():
                version = book.deleted.pop(event.model_id)
                early = isinstance(command, Tick) and at < (version.erase_at or 0)
                if early or event.files != version.files:
                    yield "lifetime", f"{event.model_id} went at {at}, not at {version.erase_at}"
            case model.VersionRestored():
                version = book.deleted.pop(event.terms.model_id)
                if (event.terms, event.files) != (version.terms, version.files):
                    yield "lifetime", f"{event.terms.model_id} came back as another one"
                book.versions[event.terms.model_id] = version
            case lifetime.VersionKept():
                book.kept[event.job_id] = event.model_id
                if event.model_id not in book.versions:
                    yield "lifetime", f"{event.job_id} keeps {event.model_id}, which is gone"
            case lifetime.VersionReleased():
                del book.kept[event.job_id]
            case ModelsErased():
                if not isinstance(command, EraseModels):
                    yield "erasure", f"{command} erased models"
                self.forgotten |= {*book.versions, *book.deleted}
                book.__init__(erased=True)  # type: ignore[misc]  # nothing is left
            case _:
                pass

    def violations_at_the_end(self, now: Ms) -> Iterator[str]:
        """Yield what should be done once the run is idle: publications, erasures and stages."""
        for tenant, book in self.tenants.items():
            for name, version in book.versions.items():
                if not version.published:
                    yield f"publication: {tenant}: {name} was neither published nor refused"
            for name, version in book.deleted.items():
                if version.erase_at is not None and version.erase_at < now:
                    yield f"lifetime: {tenant}: {name} is there after {version.erase_at}"
            for (series, stage), holder in book.holders.items():
                if holder not in book.versions or book.versions[holder].stage != stage:
                    yield f"stage: {tenant}: {holder} does not hold {stage} of {series}"
