"""The eval service's to-do list, and which evaluation belongs to the version in production.

One to-do row per evaluation that wants a verdict. `versions` has the stage of every published
version, `evaluations` where the scores of every job are, `policies` what the gate allows.
"""

from typing import Any, Final

import msgspec

from schemas.envelope import Header
from schemas.erasure import JobsErased, ModelsErased
from schemas.gate import GatePolicySet
from schemas.job import JobEnded, LookTaken, VerdictDue, VerdictRecorded
from schemas.lifetime import VersionErased
from schemas.model import (
    Stage,
    StageMoved,
    VersionDeleted,
    VersionGated,
    VersionPublished,
    VersionRestored,
)
from tunery.gate.looks import LOOKS_MAX
from tunery.runtime.verbs import Change, Delete, Done, Todo, Upsert

VERDICT: Final = "verdict"
VERSIONS: Final = "versions"
EVALUATIONS: Final = "evaluations"
POLICIES: Final = "policies"
FIRST_STAGE: Final[Stage] = "dev"  # of a new version, and of one that another has replaced
DDL: Final = """
CREATE TABLE IF NOT EXISTS versions (
  tenant text, model_id text, series text, job_id text, stage text,
  PRIMARY KEY (tenant, model_id)
);
CREATE TABLE IF NOT EXISTS evaluations (
  tenant text, job_id text, blob text, sha256 text,
  PRIMARY KEY (tenant, job_id)
);
CREATE TABLE IF NOT EXISTS policies (
  tenant text, base_id text, policy text,
  PRIMARY KEY (tenant, base_id)
);
"""


def project(header: Header, event: Any) -> tuple[Change, ...]:
    """Changes of to-do rows, stages and scores that follow from an event of `job` or `model`."""
    match event:
        case VerdictDue():
            scores = {"blob": event.scores.blob, "sha256": event.scores.sha256}
            key = {"tenant": header.tenant, "job_id": event.job_id}
            row = todo_id(event.job_id, event.look)
            due = Todo(VERDICT, row, header.key, header.tenant, event)
            return (due, Upsert(EVALUATIONS, key, scores))
        case LookTaken():
            return (Done(VERDICT, todo_id(event.job_id, event.look)),)
        case VerdictRecorded():
            return (Done(VERDICT, todo_id(event.job_id, event.summary.look)),)
        case JobEnded():
            looks = range(1, LOOKS_MAX + 1)
            return tuple(Done(VERDICT, todo_id(event.job_id, look)) for look in looks)
        case VersionPublished(terms=terms):
            job_id = terms.lineage.job_id
            known = {"series": terms.series, "job_id": job_id, "stage": FIRST_STAGE}
            return (Upsert(VERSIONS, _version(header, terms.model_id), known),)
        case VersionRestored():  # its row was kept, with the job of its newest gate run
            key = _version(header, event.terms.model_id)
            return (Upsert(VERSIONS, key, {"stage": event.stage}),)
        case StageMoved():
            moved = Upsert(VERSIONS, _version(header, event.model_id), {"stage": event.stage})
            if event.replaced is None:
                return (moved,)
            former = _version(header, event.replaced)
            return moved, Upsert(VERSIONS, former, {"stage": FIRST_STAGE})
        case VersionGated():
            return (
                Upsert(VERSIONS, _version(header, event.model_id), {"job_id": event.run.job_id}),
            )
        case GatePolicySet():
            known_base = {"tenant": header.tenant, "base_id": event.base_id}
            if event.policy is None:
                return (Delete(POLICIES, known_base),)
            text = msgspec.json.encode(event.policy).decode()
            return (Upsert(POLICIES, known_base, {"policy": text}),)
        case VersionDeleted(erase_at=None) | VersionErased():
            return (Delete(VERSIONS, _version(header, event.model_id)),)
        case JobsErased():
            return (Delete(EVALUATIONS, {"tenant": header.tenant}),)
        case ModelsErased():
            return tuple(Delete(table, {"tenant": header.tenant}) for table in (VERSIONS, POLICIES))
        case _:
            return ()


def todo_id(job_id: str, look: int) -> str:
    """The id of a look's to-do row: its outcome is another command than that of the look before."""
    return job_id if look == 1 else f"{job_id}/{look}"


def _version(header: Header, model_id: str) -> dict[str, str]:
    return {"tenant": header.tenant, "model_id": model_id}
