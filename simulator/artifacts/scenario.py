"""Ingest and registry as a scenario of the simulator, and the verdict on a run."""

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from schemas.dataset import part_blob
from schemas.topics import DATASET, MODEL, STREAMS
from simulator.artifacts.artifacts_sim import ArtifactsRun, play
from simulator.artifacts.plan import ArtifactsPlan, ArtifactsSize, draw
from simulator.control_plane.coverage import kind_of
from simulator.engine.verdict import NOTHING_BROKEN, Verdict

# Expected contents of object storage once all work has ended: nothing may be missing or extra.

KINDS = ("files", "uploads", "reports", "prepared", "models")


def wrongly_stored(run: ArtifactsRun) -> Iterator[str]:
    """Bytes that are needed and gone, and bytes that nothing needs any more."""
    bodies = run.cluster.storage.bodies
    for tenant in sorted({*run.files.tenants, *run.models.tenants}):
        book, models = run.files.tenants[tenant], run.models.tenants[tenant]
        parts = {
            part_blob(tenant, upload_id, part)
            for upload_id, upload in book.uploads.items()
            for part in upload.parts
        }
        versions = (*models.versions.values(), *models.deleted.values())
        needed = book.needed_blobs() | parts
        needed |= {file.blob for version in versions for file in version.files}
        stored = {key for key in bodies if key.startswith(f"t/{tenant}/")}
        if lost := needed - stored:
            yield f"bytes: {tenant}: {sorted(lost)} are needed and gone"
        if book.erased and models.erased:
            if stored:
                yield f"erasure: {tenant}: {sorted(stored)} are there after all"
            continue
        left = {key for key in stored - needed if key.split("/")[2] in KINDS}
        left = {key for key in left if not _may_stay(run, key)}
        if left:
            yield f"bytes: {tenant}: {sorted(left)} are there, and nothing needs them"


def _may_stay(run: ArtifactsRun, key: str) -> bool:
    """Return whether a stored object may be there although nothing needs it.

    Versions that failed while they were published leave files.
    """
    kind, name = key.split("/")[2:4]
    return kind == "models" and name in run.models.forgotten


SIZE: Final = ArtifactsSize()
CLAIM: Final = b'{"record":"claim"'


@dataclass(frozen=True)
class Artifacts:
    """Implements `Scenario`."""

    name: str = "artifacts"
    size: ArtifactsSize = SIZE

    def plan(self, seed: int) -> ArtifactsPlan:
        return draw(seed, self.size)

    def play(
        self,
        plan: ArtifactsPlan,
        trace: bool = False,
        broken: AbstractContextManager[Any] = NOTHING_BROKEN,
    ) -> Verdict:
        with broken:
            run = play(plan, self.size, trace)
        return check(run)


def check(run: ArtifactsRun) -> Verdict:
    """The verdict on a run: its violations, and the sums that a report adds up."""
    broker, log = run.log.broker, run.log
    kinds = Counter[str]()
    for stream in (DATASET.name, MODEL.name):
        for decision, _, command in log.commands(stream):
            kinds[kind_of(stream, "command", command)] += 1
            kinds.update(kind_of(stream, "event", event) for event in decision.events)
    journals = {stream.journal.name for stream in STREAMS.values()}
    entries = sum(
        not record.value.startswith(CLAIM)
        for (topic, _), records in broker.history.items()
        if topic in journals
        for record in records
    )
    accepted = sum(len(decisions) for decisions in log.decisions.values())
    return Verdict(
        violations=[*_violations(run)],
        voided=entries - accepted,
        faults=dict(broker.tally.counts),
        counts={"commands": accepted},
        trace=run.trace,
        kinds=dict(kinds),
    )


def _violations(run: ArtifactsRun) -> Iterator[str]:
    yield from (f"false stop: {stop}" for stop in run.cluster.named)
    yield from (f"died: {death}" for death in run.cluster.died)
    yield from (*run.log.violations, *run.files.violations, *run.models.violations)
    if not run.finished:
        yield "progress: not everything ended after faults had stopped"
        return
    now = run.log.broker.clock.now_ms()  # by the clock that decisions have
    yield from run.files.violations_at_the_end(now)
    yield from run.models.violations_at_the_end(now)
    yield from wrongly_stored(run)
    due = run.files.reports + run.models.reports
    if due != run.jobs.reports:
        missing, more = due - run.jobs.reports, run.jobs.reports - due
        yield f"reactions: jobs did not get {dict(missing)}, and got {dict(more)} for nothing"
    erased = {name for name, book in run.models.tenants.items() if book.erased}
    gone = {(name, part) for name in erased for part in ("models", "files")}
    if gone != run.jobs.erased:
        yield f"erasure: {run.jobs.erased} are said to be gone, not {gone}"
    yield from _broken_lineages(run)


def _broken_lineages(run: ArtifactsRun) -> Iterator[str]:
    """The files in the lineage of a version stay as long as it does, and go free after it."""
    for tenant, book in run.models.tenants.items():
        files = run.files.tenants[tenant]
        versions = (*book.versions.values(), *book.deleted.values())
        made_by = {version.terms.lineage.job_id for version in versions}
        if held := {*files.holds} - made_by:
            yield f"lineage: {tenant}: files of {sorted(held)} are held for no model"
        for job_id in sorted(made_by & {*files.holds}):
            if lost := {*files.holds[job_id]} - {*files.files}:
                yield f"lineage: {tenant}: {sorted(lost)} of {job_id} are gone"
        if not files.erased and (free := made_by - {*files.holds}):
            yield f"lineage: {tenant}: no version holds files of {sorted(free)}"


ARTIFACTS: Final = Artifacts()
