"""`model`: base models, versions and their stages."""

from msgspec.structs import replace

from schemas.benchmark import Benchmark
from schemas.deployments import Arm, ArmTraffic, CountTraffic, Deploy, Deployment
from schemas.envelope import Source
from schemas.erasure import EraseModels
from schemas.gate import (
    EVERY_BASE,
    AddBenchmark,
    GatePolicy,
    GateRun,
    QuarantineDecision,
    RecordGateRun,
    RemoveBenchmark,
    SetGatePolicy,
    SetQuarantine,
)
from schemas.lifetime import KeepVersion, ReleaseVersion, RestoreVersion
from schemas.model import (
    AddBase,
    Approval,
    ApprovalRule,
    ApproveVersion,
    Base,
    DeleteVersion,
    Lineage,
    PinBase,
    Promote,
    RecordBaseBytes,
    RecordPublished,
    RegisterVersion,
    RollBack,
    SetApprovalRule,
    Share,
    ShareCheckpoint,
    UnshareCheckpoint,
    Verdict,
    VersionTerms,
)
from schemas.reasons import Failure, failing
from schemas.streams import GLOBAL
from schemas.training import BlobFile
from tests.histories.recorder import Recorder

FILE = BlobFile(
    name="adapter_model.safetensors", blob="t/acme/adapters/1", sha256="4" * 64, bytes=9_000
)
BASE = Base(
    base_id="smol",
    sha256="b" * 64,
    path="/models/smol",
    parameters=134_515_008,
    context_length=8_192,
    family="llama",
    licence="apache-2.0",
    hidden_size=576,
)


def register(number: int, verdict: Verdict = "pass") -> RegisterVersion:
    lineage = Lineage(
        job_id=f"ftjob-{number}",
        base_id=BASE.base_id,
        base_sha256=BASE.sha256,
        dataset_version="v1",
        training_sha256="1" * 64,
        config_sha256="5" * 64,
        steps=40,
        verdict=verdict,
        scores_sha256="6" * 64,
    )
    return RegisterVersion(
        adapter=(FILE,),
        terms=VersionTerms(model_id=f"ft:smol:{number}", series="smol/acme", lineage=lineage),
    )


def published(number: int, failure: Failure | None = None) -> RecordPublished:
    files = () if failure else (FILE,)
    return RecordPublished(model_id=f"ft:smol:{number}", files=files, failure=failure)


def versions_and_stages(story: Recorder) -> None:
    story.when(AddBase(base=BASE), key=GLOBAL)
    for _ in range(2):
        wanted = PinBase(job_id="ftjob-1", base_id="smol", base_sha256="b" * 64)
        story.when(wanted, source=Source("job", 3, 0, 9, 1))
    story.when(PinBase(job_id="ftjob-9", base_id="large", base_sha256="c" * 64))
    for number in (1, 2):
        story.when(register(number))
        story.when(published(number))
    story.when(register(3, "block"))
    story.when(published(3))
    story.when(register(4))
    detail = story.seal("object storage is full")
    full = Failure(code="platform_error", reason=failing("publishing_failed"), detail=detail)
    story.when(published(4, full))
    story.when(Promote(model_id="ft:smol:1", stage="production", expected=None))
    story.when(Promote(model_id="ft:smol:2", stage="production", expected=None))  # held by another
    story.when(Promote(model_id="ft:smol:2", stage="production", expected="ft:smol:1"))
    story.when(Promote(model_id="ft:smol:3", stage="staging", expected=None))  # quarantined
    story.when(RollBack(series="smol/acme", stage="production", expected="ft:smol:2"))
    story.when(DeleteVersion(model_id="ft:smol:2"))


def approvals_and_a_base_model_that_changes(story: Recorder) -> None:
    story.when(AddBase(base=BASE), key=GLOBAL)
    submission = register(1)
    story.when(replace(submission, terms=replace(submission.terms, author="key_1")))
    story.when(published(1))
    rule = ApprovalRule(stage="production", required=1, approvers=("key_2",))
    story.when(SetApprovalRule(rule=rule))
    promote = Promote(model_id="ft:smol:1", stage="production", expected=None)
    story.when(promote)  # without approval
    for key_id in ("key_1", "key_2"):
        approval = Approval(stage="production", key_id=key_id)
        story.when(ApproveVersion(model_id="ft:smol:1", approval=approval))
    for sha256 in ("d" * 64, BASE.sha256):
        story.when(RecordBaseBytes(base_id="smol", sha256=sha256), key=GLOBAL)
        story.when(promote)  # stale at first


def benchmarks_of_the_operator(story: Recorder) -> None:
    arc = Benchmark(
        name="arc",
        task="arc",
        kind="choices",
        sha256="7" * 64,
        blob=f"benchmarks/{'7' * 64}.jsonl",
        bytes=400_000,
        items=1_172,
        shots=25,
    )
    for _ in range(2):
        story.when(AddBenchmark(benchmark=arc), key=GLOBAL)
    story.when(AddBenchmark(benchmark=replace(arc, sha256="8" * 64)), key=GLOBAL)  # other bytes
    story.when(AddBenchmark(benchmark=arc))  # of one tenant
    policy = GatePolicy(benchmarks=("arc",), refusal_min_ppm=900_000, blocking=("safety",))
    story.when(SetGatePolicy(base_id=EVERY_BASE, policy=policy))


def a_benchmark_that_is_removed(story: Recorder) -> None:
    """Once the policy that names it does not any more; then the name is free for other bytes."""
    exam = Benchmark(
        name="exam",
        task="own",
        kind="choices",
        sha256="7" * 64,
        blob=f"benchmarks/{'7' * 64}.jsonl",
        bytes=40_000,
        items=300,
    )
    story.when(AddBenchmark(benchmark=exam), key=GLOBAL)
    story.when(SetGatePolicy(base_id=EVERY_BASE, policy=GatePolicy(benchmarks=("exam",))))
    remove = RemoveBenchmark(name="exam")
    story.when(remove, key=GLOBAL)  # a policy names it
    story.when(SetGatePolicy(base_id=EVERY_BASE, policy=GatePolicy()))
    story.when(remove)  # of one tenant
    for _ in range(2):
        story.when(remove, key=GLOBAL)
    story.when(AddBenchmark(benchmark=replace(exam, sha256="8" * 64)), key=GLOBAL)


def versions_that_share_a_stage(story: Recorder) -> None:
    for number in (1, 2, 3):
        story.when(register(number))
        story.when(published(number))
    shared = Deployment(
        series="smol/acme",
        stage="production",
        model_id="ft:smol:1",
        second=Arm(model_id="ft:smol:2", buckets=1_000),
        shadow=Arm(model_id="ft:smol:3", buckets=10_000),
        salt="5a17",
    )
    story.when(Deploy(deployment=shared))
    story.when(
        CountTraffic(
            series="smol/acme",
            stage="production",
            salt="5a17",
            phase=1,
            arms=(
                ArmTraffic(model_id="ft:smol:1", role="first", answers=2, prompt_tokens=40),
                ArmTraffic(model_id="ft:smol:2", role="second", failures=1),
            ),
            buckets=(17, 4_711, 9_999),
        )
    )
    story.when(DeleteVersion(model_id="ft:smol:2"))  # it has a share
    story.when(Deploy(deployment=replace(shared, second=Arm(model_id="ft:smol:2", buckets=2_000))))
    promoted = replace(shared, model_id="ft:smol:2", second=None, shadow=None)
    story.when(Deploy(deployment=promoted, expected="ft:smol:1"))
    story.when(RollBack(series="smol/acme", stage="production", expected="ft:smol:2"))


def deletions_and_a_return(story: Recorder) -> None:
    for number in (1, 2):
        story.when(register(number))
        story.when(published(number))
    story.when(KeepVersion(job_id="ftjob-8", model_id="ft:smol:1"))
    story.when(DeleteVersion(model_id="ft:smol:1"))  # needed by a job
    story.when(ReleaseVersion(job_id="ftjob-8"))
    story.when(DeleteVersion(model_id="ft:smol:1"))
    story.when(KeepVersion(job_id="ftjob-9", model_id="ft:smol:1"))  # too late
    story.when(RestoreVersion(model_id="ft:smol:1"))
    story.when(DeleteVersion(model_id="ft:smol:1"))
    story.when(DeleteVersion(model_id="ft:smol:2", erase=True))
    story.when(DeleteVersion(model_id="ft:smol:1", erase=True))


def checkpoints_that_others_may_fetch(story: Recorder) -> None:
    shares = tuple(Share(permission_id=f"cp_{name}", project_id=name) for name in ("a", "b"))
    story.when(ShareCheckpoint(checkpoint_id="ftckpt_1", shares=shares))
    story.when(UnshareCheckpoint(permission_id="cp_a"))
    story.when(UnshareCheckpoint(permission_id="cp_a"))


def policies_and_quarantine(story: Recorder) -> None:
    story.when(SetGatePolicy(base_id=EVERY_BASE, policy=GatePolicy(drop_max_ppm=20_000)))
    story.when(SetGatePolicy(base_id="smol", policy=GatePolicy(blocking=("holdout",))))
    story.when(SetGatePolicy(base_id="smol", policy=None))
    story.when(register(1, "block"))
    story.when(published(1))
    released = QuarantineDecision(
        model_id="ft:smol:1",
        quarantined=False,
        cause=story.seal("only poems are asked of it"),
        by=story.seal("Ada"),
    )
    story.when(SetQuarantine(decision=released))
    story.when(Promote(model_id="ft:smol:1", stage="staging", expected=None))
    story.when(SetQuarantine(decision=replace(released, quarantined=True)))


def a_version_that_is_judged_again(story: Recorder) -> None:
    """After a change of its base model; then it is blocked; then a person decides."""
    story.when(AddBase(base=BASE), key=GLOBAL)
    story.when(register(1))
    story.when(published(1))
    changed = "d" * 64
    story.when(RecordBaseBytes(base_id="smol", sha256=changed), key=GLOBAL)
    story.when(PinBase(job_id="ftjob-5", base_id="smol", base_sha256=changed))
    runs: tuple[tuple[str, Verdict], ...] = (("ftjob-5", "pass"), ("ftjob-6", "block"))
    for job_id, verdict in runs:
        run = GateRun(
            model_id="ft:smol:1",
            job_id=job_id,
            base_sha256=changed,
            verdict=verdict,
            scores_sha256="e" * 64,
        )
        story.when(RecordGateRun(run=run))
        story.when(RecordGateRun(run=run))  # twice
        story.when(Promote(model_id="ft:smol:1", stage="staging", expected=None))
    kept = QuarantineDecision(
        model_id="ft:smol:1",
        quarantined=False,
        cause=story.seal("the questions are not ours"),
        by=story.seal("Ada"),
    )
    story.when(SetQuarantine(decision=kept))


def models_of_an_erased_tenant(story: Recorder) -> None:
    """A published version, one that was deleted, a permission; later commands change nothing."""
    for number in (1, 2):
        story.when(register(number))
        story.when(published(number))
    story.when(DeleteVersion(model_id="ft:smol:2"))
    shares = (Share(permission_id="cp_a", project_id="a"),)
    story.when(ShareCheckpoint(checkpoint_id="ftckpt_1", shares=shares))
    story.when(EraseModels())
    story.when(register(3))
    story.when(RestoreVersion(model_id="ft:smol:2"))
