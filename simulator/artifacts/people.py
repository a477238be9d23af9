"""Requests of clients to ingest and registry: each kind is a row of a table.

Requests are drawn over few names, so that they meet each other, and are wrong now and then.
"""

from collections.abc import Callable, Mapping
from hashlib import sha256
from random import Random
from typing import Any, Final

from schemas.benchmark import Benchmark
from schemas.dataset import (
    AddPart,
    CancelUpload,
    CompleteUpload,
    CreateUpload,
    DeleteFile,
    FileContent,
    RegisterFile,
    part_blob,
)
from schemas.deployments import BUCKETS, Arm, ArmRole, ArmTraffic, CountTraffic, Deploy, Deployment
from schemas.envelope import Message, Rejected
from schemas.gate import (
    EVERY_BASE,
    AddBenchmark,
    GatePolicy,
    QuarantineDecision,
    RemoveBenchmark,
    SetGatePolicy,
    SetQuarantine,
)
from schemas.lifetime import RestoreVersion
from schemas.model import (
    Approval,
    ApprovalRule,
    ApproveVersion,
    DeleteVersion,
    Promote,
    RecordBaseBytes,
    RollBack,
    SetApprovalRule,
    Share,
    ShareCheckpoint,
    Stage,
    UnshareCheckpoint,
)
from schemas.sealed import Sealed
from schemas.storage import DatasetName, FileTerms, StorageQuota, UploadPart, UploadTerms
from schemas.streams import GLOBAL
from schemas.topics import MODEL
from schemas.units import DAY_MS
from simulator.artifacts.file_books import FileBooks, FilesOfTenant
from simulator.artifacts.hosts import sha_of
from simulator.artifacts.model_books import ModelBooks
from simulator.artifacts.version_books import HELD, VersionsOfTenant
from simulator.control_plane.samples import BASE
from simulator.engine.sim_log import SimLog, insist
from simulator.engine.stores import Storage

STAGES: Final[tuple[Stage, ...]] = (*HELD, *HELD, "dev", "archived")
NO_TEXT: Final = Sealed(key_id="", nonce=b"", ciphertext=b"")
SERIES: Final = ("smol/a", "smol/b")
KEYS: Final = ("author", "reviewer", "other")
CONTENTS: Final = 4  # different files of a tenant, so that some are equal
PART_BYTES: Final = 40
QUOTA: Final = StorageQuota(bytes=200, files=5, uploads=2)
DRIFTED: Final = sha_of("other files of the base model")
ROLES: Final[tuple[ArmRole, ...]] = ("first", "second", "shadow")
TO_ALL: Final = "benchmark", "drift"


class TenantClient:
    """A tenant's people. What they know of their files and models is what the books know."""

    def __init__(
        self, log: SimLog, name: str, storage: Storage, files: FileBooks, models: ModelBooks
    ) -> None:
        self.log, self.name, self.storage = log, name, storage
        self.rng = log.chance(name)
        self.port, sender_as = log.port(f"{name}'s client")
        self.people, self.jobs = sender_as("gateway"), sender_as("scheduler")
        self.operator, self.inventory = sender_as("billing"), sender_as("operator")
        self._file_books, self._model_books = files, models
        self._asked = 0
        # Ids are drawn once, so a file whose id is sent again is one that stays.
        self.sent_again, self.deleted = set[str](), set[str]()

    @property
    def files(self) -> FilesOfTenant:
        return self._file_books.tenants[self.name]

    @property
    def models(self) -> VersionsOfTenant:
        return self._model_books.tenants[self.name]

    async def ask(
        self, stream: str, body: Message, sender: Any = None, *, copies: bool = False
    ) -> bool:
        """Send a request until it is decided; whether it is granted."""
        self._asked += 1
        mark = f"{self.name}/{self._asked}"
        asking = sender or self.people
        came = await self.log.ask(self.port, asking, stream, self.name, mark, body, copies=copies)
        return not any(isinstance(event, Rejected) for event in came)

    # --- files ------------------------------------------------------------------------------------

    async def send_file(self, number: int) -> None:
        """A file at once or in parts, some of which are sent again, and some never completed."""
        rng = self.log.chance(f"{self.name}'s file {number}")
        data = f"{self.name}/{rng.randrange(CONTENTS)}".encode() * PART_BYTES
        data = data[: PART_BYTES * rng.choice((1, 2, 3))]
        terms = FileTerms(
            purpose=rng.choice(("fine-tune",) * 8 + ("fine-tune-results", "base-model")),
            name=NO_TEXT,
            expires_after_ms=rng.choice((None, None, 8_000, 2 * DAY_MS)),
            dataset=_name(rng) if rng.random() < 0.4 else None,
        )
        quota = QUOTA if rng.random() < 0.4 else None
        file_id = f"file-{self.name}-{number}"
        if rng.random() < 0.5:
            known_id = rng.choice((file_id, file_id, *self.files.files))
            if known_id != file_id and self._stays(known_id):
                self.sent_again.add(known_id)
                file_id = known_id
            content = self._put(f"t/{self.name}/files/{file_id}/{number}", data)
            register = RegisterFile(file_id=file_id, terms=terms, content=content, quota=quota)
            await self._keep(register, content.blob)
            return
        upload_id = f"upload-{self.name}-{number}"
        upload = UploadTerms(media_type="text/plain", bytes=len(data), file=terms)
        create = CreateUpload(upload_id=upload_id, terms=upload, quota=quota)
        if not await self.ask("dataset", create):
            return
        parts = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
        names = [f"part-{at}" for at in range(len(parts))]
        for name, part in [*zip(names, parts, strict=True), *([("more", data)] * (number % 2))]:
            stored = self._put(part_blob(self.name, upload_id, name), part)
            added = UploadPart(part_id=name, bytes=len(part), sha256=stored.sha256)
            await self._keep(AddPart(upload_id=upload_id, part=added), stored.blob)
        await self.port.sleep(rng.randint(0, 3_000))
        match rng.randrange(6):
            case 0:
                await self.ask("dataset", CancelUpload(upload_id=upload_id))
            case 1:
                pass  # left open until it expires
            case _:
                content = self._put(f"t/{self.name}/files/{file_id}/{number}", data)
                if rng.random() < 0.2:
                    names[-1] = rng.choice(("more", names[0]))
                complete = CompleteUpload(
                    upload_id=upload_id,
                    parts=tuple(names),
                    file_id=file_id,
                    content=content,
                    quota=quota,
                )
                await self._keep(complete, content.blob)

    async def _keep(self, command: Message, blob: str) -> None:
        """Send a command about stored bytes, which go when it is refused.

        Another request of a client would store bytes of its own under another file's id.
        """
        if (
            not await self.ask("dataset", command, copies=True)
            and blob not in self.files.needed_blobs()
        ):
            self.storage.bodies.pop(blob, None)

    def _stays(self, file_id: str) -> bool:
        """Return whether nothing deletes a file that is there."""
        return file_id not in self.deleted and self.files.files[file_id].expires_at is None

    def _put(self, key: str, data: bytes) -> FileContent:
        self.storage.bodies[key] = data
        return FileContent(bytes=len(data), sha256=sha256(data).hexdigest(), blob=key)

    # --- requests of the table --------------------------------------------------------------------

    async def request(self, name: str, rng: Random) -> None:
        body = REQUESTS[name](self, rng)
        if body is None:
            return
        if name in TO_ALL:
            await self.announce(body)
        else:
            await self.ask("dataset" if isinstance(body, DeleteFile) else "model", body)

    async def announce(self, body: Message) -> None:
        """A fact about all tenants goes to every partition."""
        for partition in sorted(self.log.broker.active[MODEL.commands.name]):
            await insist(self.port, self.people, MODEL.name, GLOBAL, body, partition=partition)

    def any_version(self, rng: Random) -> str:
        names = sorted(self.models.versions) or ["none"]
        return rng.choice((*names, *names, *sorted(self.models.deleted)))

    def holder(self, rng: Random, series: str, stage: str) -> str | None:
        """Return the stage's holder as a client believes it to be: mostly the real one."""
        held = self.models.holders.get((series, stage))
        return held if rng.random() < 0.85 else rng.choice((None, self.any_version(rng)))

    def series_of(self, model_id: str, rng: Random) -> str:
        version = self.models.versions.get(model_id)
        return rng.choice(SERIES) if version is None else version.terms.series


def _name(rng: Random) -> DatasetName:
    return DatasetName(key=f"set-{rng.randrange(2)}", name=NO_TEXT)


def _promote(keeper: TenantClient, rng: Random) -> Message:
    """Promote any version; or one that has approvals, or archive one that has a share."""
    models = keeper.models
    name, stage = keeper.any_version(rng), rng.choice(STAGES)
    expected = keeper.holder(rng, keeper.series_of(name, rng), stage)
    approved = sorted(name for name, version in models.versions.items() if version.approvals)
    if approved and rng.random() < 0.4:
        name, stage = rng.choice(approved), rng.choice(HELD)
        expected = models.holders.get((models.versions[name].terms.series, stage))
    shared = sorted(name for name in models.versions if models.has_share(name))
    if shared and rng.random() < 0.2:
        name, stage, expected = rng.choice(shared), "archived", None
    return Promote(model_id=name, stage=stage, expected=expected)


def _roll_back(keeper: TenantClient, rng: Random) -> Message | None:
    held = [
        series_stage for series_stage in keeper.models.holders if keeper.models.former[series_stage]
    ]
    series, stage = rng.choice(held or [(rng.choice(SERIES), rng.choice((*HELD, "dev")))])
    holder = keeper.holder(rng, series, stage)
    return RollBack(series=series, stage=stage, expected=holder or "none")  # type: ignore[arg-type]  # a stage


def _deploy(keeper: TenantClient, rng: Random) -> Message:
    stage, models = rng.choice(HELD), keeper.models
    held = [name for (_, of), name in models.holders.items() if of == stage]
    name = rng.choice((*held, *held, keeper.any_version(rng)))
    series = keeper.series_of(name, rng)
    before = models.answering.get((series, stage))
    arms: list[Arm | None] = []
    for kept in ("second", "shadow"):
        arm = None if before is None else getattr(before.deployment, kept)
        if arm is None or rng.random() < 0.5:
            others = [other for other in sorted(models.versions) if other != name]
            other = rng.choice(others or [keeper.any_version(rng)])
            share = rng.choice((1, 2_000, 2_000, 5_000, BUCKETS))
            arm = Arm(model_id=other, buckets=share) if others and rng.random() < 0.5 else None
        arms.append(arm)
    wanted = Deployment(
        series=series,
        stage=stage,
        model_id=name,
        second=arms[0],
        shadow=arms[1],
        salt=f"{rng.randrange(99)}",
    )
    return Deploy(deployment=wanted, expected=keeper.holder(rng, series, stage))


def _count(keeper: TenantClient, rng: Random) -> Message:
    """Report the answers of a stage, with shares of an earlier phase in one case of five.

    Deploy a model instead when no stage answers yet.
    """
    stages = sorted(keeper.models.answering)
    if not stages:
        return _deploy(keeper, rng)
    series, stage = rng.choice(stages)
    now = keeper.models.answering[series, stage].deployment
    return CountTraffic(
        series=series,
        stage=stage,  # type: ignore[arg-type]  # of a deployment
        salt=now.salt,
        phase=now.phase - (rng.random() < 0.2),
        arms=tuple(
            ArmTraffic(
                model_id=arm.model_id,
                role=role,
                answers=rng.randrange(9),
                failures=rng.randrange(2),
            )
            for role, arm in zip(ROLES, (now, now.second, now.shadow), strict=True)
            if arm is not None
        ),
        buckets=tuple(rng.choice((1, 999, 2_500, 9_000, BUCKETS)) for _ in range(3)),
    )


def _quarantine(keeper: TenantClient, rng: Random) -> Message:
    """Quarantine any version, or let it out; or quarantine one that has held a stage."""
    name, quarantined = keeper.any_version(rng), rng.random() < 0.4
    former = sorted({name for names in keeper.models.former.values() for name in names})
    if former and rng.random() < 0.5:
        name, quarantined = rng.choice(former), True
    return set_quarantine(name, quarantined)


def set_quarantine(name: str, quarantined: bool) -> SetQuarantine:
    decision = QuarantineDecision(model_id=name, quarantined=quarantined, cause=NO_TEXT, by=NO_TEXT)
    return SetQuarantine(decision=decision)


def _rule(_: TenantClient, rng: Random) -> Message:
    approvers = tuple(rng.sample(KEYS, rng.choice((0, 0, 1, 2))))
    required = rng.choice((0, 1, 1, 2))
    rule = ApprovalRule(stage=rng.choice(HELD), required=required, approvers=approvers)
    return SetApprovalRule(rule=rule)


def _approve(keeper: TenantClient, rng: Random) -> Message:
    approval = Approval(stage=rng.choice(HELD), key_id=rng.choice(KEYS))
    name, held = keeper.any_version(rng), sorted(keeper.models.holders.values())
    if keeper.models.rules and held and rng.random() < 0.5:
        name = rng.choice(held)
    return ApproveVersion(model_id=name, approval=approval)


def _share(keeper: TenantClient, rng: Random) -> Message:
    shares = [
        Share(
            permission_id=f"perm-{keeper.name}-{rng.getrandbits(30)}",
            project_id=f"project-{rng.randrange(3)}",
        )
        for _ in range(2)
    ]
    return ShareCheckpoint(checkpoint_id=f"step-{rng.randrange(2)}", shares=tuple(shares))


def _policy(_: TenantClient, rng: Random) -> Message:
    policy = GatePolicy(benchmarks=("mine",) if rng.random() < 0.5 else ())
    chosen = policy if rng.random() < 0.7 else None
    return SetGatePolicy(base_id=rng.choice((EVERY_BASE, BASE.base_id)), policy=chosen)


def _benchmark(_: TenantClient, rng: Random) -> Message:
    if rng.random() < 0.4:
        return RemoveBenchmark(name="mine")
    added = Benchmark(
        name="mine",
        task="mmlu",
        kind="choices",
        sha256=sha_of(rng.choice((0, 0, 0, 1))),
        blob="benchmarks/mine",
        bytes=9,
        items=3,
    )
    return AddBenchmark(benchmark=added)


def _drift(_: TenantClient, rng: Random) -> Message:
    name = rng.choice((BASE.base_id,) * 5 + ("unknown",))
    return RecordBaseBytes(base_id=name, sha256=rng.choice((BASE.sha256, DRIFTED)))


def _delete(keeper: TenantClient, rng: Random) -> Message:
    return DeleteVersion(model_id=keeper.any_version(rng), erase=rng.random() < 0.2)


def _delete_file(keeper: TenantClient, rng: Random) -> Message:
    file_id = rng.choice(sorted(keeper.files.files) or ["file-none"])
    if file_id in keeper.sent_again:
        file_id = "file-none"
    keeper.deleted.add(file_id)
    return DeleteFile(file_id=file_id)


def _unshare(keeper: TenantClient, rng: Random) -> Message:
    return UnshareCheckpoint(permission_id=rng.choice([*keeper.models.shared, "none"]))


Request = Callable[[TenantClient, Random], Message | None]
#: What people may ask for.
REQUESTS: Final[Mapping[str, Request]] = {
    "delete file": _delete_file,
    "promote": _promote,
    "roll back": _roll_back,
    "deploy": _deploy,
    "count": _count,
    "quarantine": _quarantine,
    "rule": _rule,
    "approve": _approve,
    "delete": _delete,
    "restore": lambda keeper, rng: RestoreVersion(model_id=keeper.any_version(rng)),
    "share": _share,
    "unshare": _unshare,
    "policy": _policy,
    "benchmark": _benchmark,
    "drift": _drift,
}
#: How often each is asked for, besides `drift`, which a plan counts.
WEIGHTS: Final[Mapping[str, int]] = {
    **{name: 2 for name in REQUESTS if name != "drift"},
    "promote": 6,
    "deploy": 5,
    "count": 6,
    "delete": 4,
    "roll back": 4,
    "restore": 4,
    "delete file": 4,
    "rule": 1,
    "share": 1,
    "unshare": 1,
    "policy": 1,
    "benchmark": 1,
}
