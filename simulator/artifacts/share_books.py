"""An independent account of stages: who may hold one, who shares its traffic, what was answered."""

from collections.abc import Iterator
from typing import Any, Final

from msgspec.structs import replace

from schemas.deployments import (
    BUCKETS,
    ArmTraffic,
    CountTraffic,
    Deploy,
    Deployed,
    Deployment,
    TrafficCounted,
)
from schemas.model import Promote, RollBack, StageMoved
from simulator.artifacts.version_books import HELD, Answering, Bases, BookVersion, VersionsOfTenant

COUNTS: Final = ("answers", "failures", "prompt_tokens", "completion_tokens", "answer_ms")
Findings = Iterator[tuple[str, str]]


def _may_hold(bases: Bases, book: VersionsOfTenant, version: BookVersion, stage: str) -> bool:
    return stage not in HELD or not (
        bases.is_stale(version) or book.lacks_approvals(version, stage)
    )


def cannot_promote(bases: Bases, book: VersionsOfTenant, c: Promote) -> bool:
    version = book.versions.get(c.model_id)
    if version is None or not version.published:
        return True
    if c.stage == "archived":
        return book.has_share(c.model_id) or c.expected is not None
    if version.quarantined or not _may_hold(bases, book, version, c.stage):
        return True
    return c.expected != book.holders.get((version.terms.series, c.stage))


def cannot_roll_back(bases: Bases, book: VersionsOfTenant, c: RollBack) -> bool:
    series_stage = c.series, c.stage
    before = _before(book, series_stage)
    if before is None or book.holders.get(series_stage) != c.expected:
        return True
    return bases.is_stale(book.versions[before])


def _before(book: VersionsOfTenant, series_stage: tuple[str, str]) -> str | None:
    """Return the last former holder of a stage that exists, is not quarantined and holds no stage,
    or None.
    """
    names = [
        name
        for name in book.former[series_stage]
        if name in book.versions
        and not book.versions[name].quarantined
        and book.versions[name].stage not in HELD
    ]
    return names[-1] if names else None


def cannot_deploy(bases: Bases, book: VersionsOfTenant, c: Deploy) -> bool:
    """The first version has to hold the stage or may be promoted; others may have their share."""
    wanted = c.deployment
    version = book.versions.get(wanted.model_id)
    if version is None or version.stage == "archived":
        return True
    if book.holders.get((version.terms.series, wanted.stage)) != wanted.model_id:
        promote = Promote(model_id=wanted.model_id, stage=wanted.stage, expected=c.expected)
        if cannot_promote(bases, book, promote):
            return True
    names = [wanted.model_id]
    for arm, most in ((wanted.second, BUCKETS - 1), (wanted.shadow, BUCKETS)):
        if arm is None:
            continue
        names.append(arm.model_id)
        other = book.versions.get(arm.model_id)
        if other is None or not other.published or other.quarantined or other.stage == "archived":
            return True
        seen = arm is wanted.second
        may = _may_hold(bases, book, other, wanted.stage) if seen else not bases.is_stale(other)
        if not (may and 1 <= arm.buckets <= most):
            return True
    return len({*names}) < len(names)


def enter_stage(bases: Bases, book: VersionsOfTenant, event: StageMoved, at_once: bool) -> Findings:
    """A version moves. `at_once`: a person has asked for it, with `Promote` or `Deploy`."""
    version, series_stage = book.versions[event.model_id], (event.series, event.stage)
    if event.replaced != (book.holders.get(series_stage) if event.stage in HELD else None):
        yield "stage", f"{event} does not replace {book.holders.get(series_stage)}"
    if version.quarantined and event.stage != "archived":
        yield "quarantine", f"{event} lets {event.model_id} out"
    if event.stage in HELD and bases.is_stale(version):
        yield "stale", f"{event} is of other files of its base model"
    if at_once and event.stage in HELD and book.lacks_approvals(version, event.stage):
        yield "approval", f"{event} lacks approvals"
    if event.by == "rollback" and event.model_id != _before(book, series_stage):
        yield (
            "rollback",
            f"{event} goes back to {event.model_id}, not {_before(book, series_stage)}",
        )
    left = event.series, version.stage
    if book.holders.get(left) == event.model_id:
        book.former[left].append(event.model_id)
        del book.holders[left]
    for other in [left, series_stage]:
        answering = book.answering.get(other)
        if answering and (other == series_stage or answering.deployment.model_id == event.model_id):
            del book.answering[other]
    if event.stage in HELD:
        former = book.former[series_stage]
        if event.by == "rollback":  # back to where it was: what came after it is forgotten
            del former[len(former) - 1 - former[::-1].index(event.model_id) :]
        elif event.replaced is not None:
            former.append(event.replaced)
        if event.replaced is not None:
            book.versions[event.replaced].stage = "dev"
        book.holders[series_stage] = event.model_id
    version.stage = event.stage


def enter_deployment(book: VersionsOfTenant, wanted: Any, event: Deployed) -> Findings:
    """Shares of a stage: the same callers stay where they were while they change."""
    new = event.deployment
    series_stage = new.series, new.stage
    if book.holders.get(series_stage) != new.model_id:
        yield "deployment", f"{new.model_id} does not hold {series_stage}"
    known = book.answering.get(series_stage)
    phase, salt = 1, wanted.salt
    if known is not None:
        phase = known.deployment.phase + 1
        if _second(known.deployment) == _second(new):
            salt = known.deployment.salt
    if (new.phase, new.salt) != (phase, salt):
        yield "deployment", f"{new} is not phase {phase} with salt {salt}"
    book.answering[series_stage] = Answering(new)


def _second(deployment: Deployment) -> str | None:
    return None if deployment.second is None else deployment.second.model_id


def _zero(arm: ArmTraffic) -> ArmTraffic:
    return ArmTraffic(model_id=arm.model_id, role=arm.role)


def enter_traffic(
    book: VersionsOfTenant, c: CountTraffic, event: TrafficCounted | None
) -> Findings:
    """Counts add up, of the shares that they were counted under alone; each caller counts once."""
    answering = book.answering.get((c.series, c.stage))
    if answering is None:
        if event is not None:
            yield "traffic", f"{event} is of no deployment"
        return
    now = answering.deployment
    if (now.salt, now.phase) == (c.salt, c.phase):
        answering.buckets |= {bucket for bucket in c.buckets if 0 <= bucket < BUCKETS}
        names = {"first": now.model_id, "second": _second(now)}
        names["shadow"] = None if now.shadow is None else now.shadow.model_id
        for arm in {arm.role: arm for arm in c.arms}.values():
            if names[arm.role] == arm.model_id:
                sums = answering.sums.get(arm.role) or _zero(arm)
                more = {name: getattr(sums, name) + getattr(arm, name) for name in COUNTS}
                answering.sums[arm.role] = replace(sums, **more)
    if event is None:
        return
    border = 0 if now.second is None else now.second.buckets
    below = sum(bucket < border for bucket in answering.buckets)
    subjects = {"first": len(answering.buckets) - below, "second": below, "shadow": 0}
    for arm in event.arms:
        due = answering.sums.get(arm.role) or _zero(arm)
        if arm != replace(due, subjects=subjects[arm.role]):
            yield "traffic", f"{arm} is said of {due} and {subjects[arm.role]} callers"
