"""Read the raw scores of an evaluation, judge them, and send the verdict to `job`."""

from schemas import errors
from schemas.job import RecordVerdict, VerdictDue
from schemas.reasons import Failure, failing
from services.eval.domain.verdict import summarise
from services.eval.project import VERDICT
from tunery.runtime.blobs.abstract import Blobs
from tunery.runtime.seal.sealer import Sealer
from tunery.runtime.verbs import Effect, Send
from tunery.work.codec import decode_scores


def verdict(blobs: Blobs, seal: Sealer) -> Effect[VerdictDue]:
    """Judge an evaluation by the scores that its job recorded."""

    async def run(due: VerdictDue, tenant: str, _: int = 1) -> Send:
        data = await blobs.get(due.scores.blob, sha256=due.scores.sha256)
        scores = decode_scores(data)
        summary = summarise(scores, due.drop_max_ppm)
        return _record(due, tenant, RecordVerdict(job_id=due.job_id, summary=summary))

    def exhausted(due: VerdictDue, tenant: str, failure: str) -> Send:
        unjudged = Failure(
            code=errors.PLATFORM,
            reason=failing("scores_unjudged"),
            detail=seal.seal(tenant, failure),
        )
        record = RecordVerdict(job_id=due.job_id, summary=None, failure=unjudged)
        return _record(due, tenant, record)

    return Effect(kind=VERDICT, body=VerdictDue, run=run, exhausted=exhausted)


def _record(due: VerdictDue, tenant: str, outcome: RecordVerdict) -> Send:
    return Send("job", tenant, tenant, outcome)
