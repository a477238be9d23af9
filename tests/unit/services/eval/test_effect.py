"""The verdict effect: only the scores that the job recorded are judged."""

import hashlib

import pytest

from schemas.job import RecordVerdict, VerdictDue
from schemas.reasons import failing
from schemas.training import BlobFile
from services.eval.effect import verdict
from tests.unit.services.eval.samples import holdout, item, scores
from tunery.runtime.blobs.abstract import BlobCorrupt
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.seal.memory import MemoryKeyStore
from tunery.runtime.seal.sealer import Sealer
from tunery.work.codec import encode_scores

SEAL = Sealer(MemoryKeyStore())


def results(right: bool) -> bytes:
    """A results file of 200 items that the base knows, and that the adapter knows or not."""
    return encode_scores(scores((item(1, True, right),) * 200, holdout(None, None)))


def due(data: bytes) -> VerdictDue:
    sha256 = hashlib.sha256(data).hexdigest()
    file = BlobFile(name="scores.json", blob="t/acme/scores", sha256=sha256, bytes=len(data))
    return VerdictDue(job_id="ftjob-1", scores=file)


async def test_the_verdict_goes_to_the_job() -> None:
    blobs = MemoryBlobs()
    await blobs.put("t/acme/scores", results(right=False))
    send = await verdict(blobs, SEAL).run(due(results(right=False)), "acme")
    assert send is not None
    assert (send.stream, send.key) == ("job", "acme")
    assert isinstance(send.body, RecordVerdict)
    assert send.body.summary is not None
    assert send.body.summary.verdict == "block"


async def test_scores_with_another_hash_are_not_judged() -> None:
    blobs = MemoryBlobs()
    await blobs.put("t/acme/scores", results(right=True))
    with pytest.raises(BlobCorrupt):
        await verdict(blobs, SEAL).run(due(results(right=False)), "acme")


async def test_scores_that_cannot_be_judged_are_reported_with_what_was_wrong_sealed() -> None:
    send = verdict(MemoryBlobs(), SEAL).exhausted(due(b"x"), "acme", "there is no blob")
    assert send is not None
    assert isinstance(send.body, RecordVerdict)
    assert send.body.failure is not None
    assert send.body.failure.reason == failing("scores_unjudged")
    assert send.body.failure.detail is not None
    assert SEAL.open(send.body.failure.detail) == "there is no blob"
