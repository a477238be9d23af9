"""Read the raw scores of an evaluation, judge them, and send the verdict to `job`."""

import asyncio
import logging
from typing import Final

import msgspec

from schemas import errors
from schemas.gate import EVERY_BASE, GatePolicy
from schemas.job import RecordLook, RecordVerdict, VerdictDue
from schemas.reasons import Failure, failing
from services.eval.domain.verdict import Looks, Production, summarise, wants_more_items
from services.eval.project import EVALUATIONS, POLICIES, VERDICT, VERSIONS
from tunery.platform.ports import Runtime
from tunery.runtime.blobs.abstract import BlobCorrupt, BlobMissing
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.verbs import Effect, Send
from tunery.work.codec import decode_scores

LOG: Final = logging.getLogger("tunery.work")


def verdict(runtime: Runtime) -> Effect[VerdictDue]:
    """Judge an evaluation by the scores that its job recorded."""

    async def run(due: VerdictDue, tenant: str, _: int = 1) -> Send:
        data = await runtime.blobs.get(due.scores.blob, sha256=due.scores.sha256)
        scores = decode_scores(data)
        production = await _production(runtime, due, tenant)
        policy = await _policy(runtime, due, tenant)
        looks = Looks(due.look, due.looks_ppm)
        # the bootstrap of many rows takes seconds, in which the service has to answer
        summary = await asyncio.to_thread(
            summarise, scores, due.drop_max_ppm, production, policy, due.training, looks
        )
        if wants_more_items(summary, policy):
            look = RecordLook(job_id=due.job_id, look=due.look, comparisons=summary.comparisons)
            return _record(due, tenant, look)
        return _record(due, tenant, RecordVerdict(job_id=due.job_id, summary=summary))

    def exhausted(due: VerdictDue, tenant: str, failure: str) -> Send:
        unjudged = Failure(
            code=errors.PLATFORM,
            reason=failing("scores_unjudged"),
            detail=runtime.seal.seal(tenant, failure, "detail"),
        )
        record = RecordVerdict(job_id=due.job_id, summary=None, failure=unjudged)
        return _record(due, tenant, record)

    return Effect(kind=VERDICT, body=VerdictDue, run=run, exhausted=exhausted)


async def _policy(runtime: Runtime, due: VerdictDue, tenant: str) -> GatePolicy:
    """Return the tenant's policy for this base model, else its policy for all, else the default."""
    for base_id in (due.base_id, EVERY_BASE):
        where = {"tenant": tenant, "base_id": base_id}
        for row in await runtime.store.rows(POLICIES, where):
            return msgspec.json.decode(row["policy"], type=GatePolicy)
    return GatePolicy()


async def _production(runtime: Runtime, due: VerdictDue, tenant: str) -> Production | None:
    """The version that is in production of the same series; None: there is none to compare with.

    With scores that are gone or damaged nothing can be compared: a job is then judged without them.
    """
    if due.series is None:
        return None
    held = {"tenant": tenant, "series": due.series, "stage": "production"}
    for version in await runtime.store.rows(VERSIONS, held):
        if version["model_id"] == due.model_id:
            return None  # it would be compared with itself
        key = {"tenant": tenant, "job_id": version["job_id"]}
        for evaluation in await runtime.store.rows(EVALUATIONS, key):
            try:
                data = await runtime.blobs.get(evaluation["blob"], sha256=evaluation["sha256"])
            except (BlobMissing, BlobCorrupt):
                log_event(
                    LOG,
                    logging.WARNING,
                    "gate.production_scores_lost",
                    model_id=version["model_id"],
                )
                continue
            scores = decode_scores(data)
            benchmarks = {asked.sha256: asked.items for asked in scores.benchmarks}
            return Production(version["model_id"], scores.items, benchmarks)
    return None


def _record(due: VerdictDue, tenant: str, outcome: RecordLook | RecordVerdict) -> Send:
    return Send("job", tenant, tenant, outcome)
