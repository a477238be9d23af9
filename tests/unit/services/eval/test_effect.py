"""The verdict effect: only the scores that the job recorded are judged."""

import hashlib

import msgspec
import pytest

from schemas.job import RecordVerdict, VerdictDue
from schemas.training import BlobFile
from services.eval.effect import verdict
from tunery.runtime.blobs.abstract import BlobCorrupt
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.work.scores import Holdout, Item, Scores

HOLDOUT = Holdout(
    rows=0, tokens=0, base_loss=None, adapter_loss=None, generated=0, base_exact=0, adapter_exact=0
)


def scores(right: bool) -> bytes:
    item = Item(id="1", category="facts", base=True, adapter=right)
    return msgspec.json.encode(Scores(items=(item,) * 200, holdout=HOLDOUT, answers=()))


def due(data: bytes) -> VerdictDue:
    sha256 = hashlib.sha256(data).hexdigest()
    file = BlobFile(name="scores.json", blob="t/acme/scores", sha256=sha256, bytes=len(data))
    return VerdictDue(job_id="ftjob-1", scores=file)


async def test_the_verdict_goes_to_the_job() -> None:
    blobs = MemoryBlobs()
    await blobs.put("t/acme/scores", scores(right=False))
    send = await verdict(blobs).run(due(scores(right=False)), "acme")
    assert send is not None
    assert (send.stream, send.key) == ("job", "acme")
    assert isinstance(send.body, RecordVerdict)
    assert send.body.summary is not None
    assert send.body.summary.verdict == "block"


async def test_other_bytes_are_not_judged() -> None:
    blobs = MemoryBlobs()
    await blobs.put("t/acme/scores", scores(right=True))
    with pytest.raises(BlobCorrupt):
        await verdict(blobs).run(due(scores(right=False)), "acme")
