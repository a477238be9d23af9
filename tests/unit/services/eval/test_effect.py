"""The verdict effect: only the scores that the job recorded are judged, beside production's."""

import hashlib
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from schemas.gate import EVERY_BASE, GatePolicy, GatePolicySet
from schemas.job import RecordLook, RecordVerdict, VerdictDue
from schemas.model import ScoreSummary, StageMoved, VersionPublished
from schemas.reasons import failing
from schemas.topics import MODEL
from schemas.training import BlobFile
from services.eval.app import TODOS
from services.eval.effect import verdict
from services.eval.project import EVALUATIONS, project
from tests.unit.services.eval.samples import TERMS, holdout, item, scores
from tests.unit.services.headers import header
from tunery.platform.memory_servers import memory_servers
from tunery.platform.ports import Runtime
from tunery.runtime.blobs.abstract import BlobCorrupt
from tunery.runtime.journal.reader import Position
from tunery.runtime.store.abstract import RowBatch
from tunery.runtime.verbs import Change, Upsert
from tunery.work.codec import encode_scores

IN_PRODUCTION = (
    *project(header("model"), VersionPublished(terms=TERMS, files=(), quarantined=False)),
    *project(
        header("model"),
        StageMoved(
            model_id=TERMS.model_id,
            series=TERMS.series,
            stage="production",
            replaced=None,
            by="promotion",
        ),
    ),
)


def results(right: bool, base: bool = True) -> bytes:
    """A results file of 200 items that the base knows or not, and the adapter as well."""
    items = tuple(item(number, base, right) for number in range(200))
    return encode_scores(scores(items, holdout(None, None)))


def due(data: bytes, series: str | None = None, base_id: str | None = None) -> VerdictDue:
    sha256 = hashlib.sha256(data).hexdigest()
    file = BlobFile(name="scores.json", blob="t/acme/scores", sha256=sha256, bytes=len(data))
    return VerdictDue(job_id="ftjob-1", scores=file, series=series, base_id=base_id)


async def eval_runtime(changes: Sequence[Change] = ()) -> Runtime:
    """The servers of the service, with these changes in its tables."""
    runtime = (await memory_servers()).runtime("eval")
    await runtime.store.ensure(TODOS.described())
    batch = RowBatch(
        TODOS.name, TODOS.version, (MODEL.name, 0), 0, Position(1), changes=tuple(changes)
    )
    await runtime.store.commit(batch)
    return runtime


async def summary_of(runtime: Runtime, data: bytes, series: str | None) -> ScoreSummary:
    await runtime.blobs.put("t/acme/scores", data)
    send = await verdict(runtime).run(due(data, series), "acme")
    assert send is not None
    assert (send.stream, send.key) == ("job", "acme")
    assert isinstance(send.body, RecordVerdict)
    assert send.body.summary is not None
    return send.body.summary


async def test_the_verdict_goes_to_the_job() -> None:
    summary = await summary_of(await eval_runtime(), results(right=False), None)
    assert (summary.verdict, len(summary.comparisons)) == ("block", 1)


async def test_the_version_in_production_of_the_series_is_compared_with() -> None:
    """As good as a base model that knows nothing, where production knows everything."""
    before = results(right=True, base=False)
    where = {"blob": "t/acme/before", "sha256": hashlib.sha256(before).hexdigest()}
    row = Upsert(EVALUATIONS, {"tenant": "acme", "job_id": TERMS.lineage.job_id}, where)
    runtime = await eval_runtime((*IN_PRODUCTION, row))
    await runtime.blobs.put("t/acme/before", before)
    summary = await summary_of(runtime, results(right=False, base=False), TERMS.series)
    assert [result.model_id for result in summary.comparisons] == [None, TERMS.model_id]
    assert [result.verdict for result in summary.comparisons] == ["pass", "block"]
    assert summary.verdict == "block"
    others = await summary_of(runtime, results(right=False, base=False), "another series")
    assert (others.verdict, len(others.comparisons)) == ("pass", 1)


@pytest.mark.parametrize("kept", [None, b"damaged"])
async def test_scores_of_production_that_are_lost_leave_the_base_model(kept: bytes | None) -> None:
    where = {"blob": "t/acme/before", "sha256": "0" * 64}
    row = Upsert(EVALUATIONS, {"tenant": "acme", "job_id": TERMS.lineage.job_id}, where)
    runtime = await eval_runtime((*IN_PRODUCTION, row))
    if kept is not None:
        await runtime.blobs.put("t/acme/before", kept)
    summary = await summary_of(runtime, results(right=True), TERMS.series)
    assert (summary.verdict, len(summary.comparisons)) == ("pass", 1)


async def test_the_policy_of_the_base_model_goes_before_that_of_all() -> None:
    general, own = GatePolicy(blocking=("production",)), GatePolicy(alpha_ppm=10_000)
    events = (
        GatePolicySet(base_id=EVERY_BASE, policy=general),
        GatePolicySet(base_id="small", policy=own),
        GatePolicySet(base_id="gone", policy=own),
        GatePolicySet(base_id="gone", policy=None),
    )
    changes = [change for event in events for change in project(header("model"), event)]
    runtime, data = await eval_runtime(changes), results(right=False)
    await runtime.blobs.put("t/acme/scores", data)
    for base_id, policy in (("small", own), ("gone", general), (None, general)):
        send = await verdict(runtime).run(due(data, None, base_id), "acme")
        assert send is not None
        assert isinstance(send.body, RecordVerdict)
        assert send.body.summary is not None
        assert send.body.summary.policy == policy


async def test_scores_with_another_hash_are_not_judged() -> None:
    runtime = await eval_runtime()
    await runtime.blobs.put("t/acme/scores", results(right=True))
    with pytest.raises(BlobCorrupt):
        await verdict(runtime).run(due(results(right=False)), "acme")


async def test_scores_that_cannot_be_judged_are_reported_with_what_was_wrong_sealed() -> None:
    runtime = await eval_runtime()
    exhausted = verdict(runtime).exhausted
    assert exhausted is not None
    send = exhausted(due(b"x"), "acme", "there is no blob")
    assert isinstance(send.body, RecordVerdict)
    assert send.body.failure is not None
    assert send.body.failure.reason == failing("scores_unjudged")
    assert send.body.failure.detail is not None
    assert runtime.seal.open(send.body.failure.detail, "detail") == "there is no blob"


async def test_a_look_that_decides_nothing_goes_to_the_job_as_a_look() -> None:
    runtime = await eval_runtime()
    items = tuple(item(number, number < 100, 18 <= number < 100) for number in range(200))
    data = encode_scores(scores(items, holdout(None, None)))
    await runtime.blobs.put("t/acme/scores", data)
    looks = (500_000, 1_000_000)
    send = await verdict(runtime).run(replace(due(data), looks_ppm=looks), "acme")
    assert send is not None
    assert isinstance(send.body, RecordLook)
    assert (send.body.look, len(send.body.comparisons)) == (1, 1)
    send = await verdict(runtime).run(replace(due(data), look=2, looks_ppm=looks), "acme")
    assert send is not None
    assert isinstance(send.body, RecordVerdict)
    assert send.body.summary is not None
    assert (send.body.summary.look, send.body.summary.looks_ppm) == (2, looks)
