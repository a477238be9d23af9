"""Jobs as ingest and registry know them: they pin files and a base, and make models."""

import asyncio
import json
import struct
from collections import Counter, defaultdict
from hashlib import sha256
from typing import Any, Final

from schemas.dataset import (
    MixedFile,
    PinDataset,
    PinTerms,
    PrepareSpec,
    UnpinDataset,
)
from schemas.envelope import Envelope
from schemas.erasure import RecordErasedPart
from schemas.gate import GateRun, RecordGateRun
from schemas.job import RecordBase, RecordDataset, RecordFile, RecordRegistered
from schemas.lifetime import KeepVersion, ReleaseVersion
from schemas.model import Lineage, PinBase, RegisterVersion, VersionTerms
from schemas.training import BlobFile
from simulator.artifacts.hosts import is_rotten, sha_of
from simulator.artifacts.people import DRIFTED, KEYS, SERIES, TenantClient
from simulator.artifacts.plan import ArtifactsPlan
from simulator.control_plane.samples import BASE
from simulator.engine.sim_log import SimLog

HEADER: Final = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
WEIGHTS: Final = struct.pack("<Q", len(HEADER)) + HEADER + bytes(8)
FILES: Final = {"config.json": b'{"model_type": "llama"}', "model.safetensors": WEIGHTS}
PICKLE: Final = {**FILES, "model.bin": b"pickled"}


class SimJobs:
    """Jobs of all tenants. reports: what `job` and `account` were sent, once for each command."""

    def __init__(self, log: SimLog, plan: ArtifactsPlan) -> None:
        self.log, self.plan = log, plan
        self.reports = Counter[str]()
        self._answers: dict[str, asyncio.Future[Any]] = defaultdict(asyncio.Future)
        self._ends: dict[str, list[asyncio.Future[None]]] = defaultdict(list)
        self._closed = set[str]()
        self.erased: set[tuple[str, str]] = set()  # tenants, and parts of them that are gone

    def hear(self, envelope: Envelope, body: Any) -> None:
        """Take a command that `job` or `account` is sent."""
        answer: object = None
        match body:
            case RecordDataset():
                what, answer = f"job {body.job_id}", body.prepared
            case RecordBase():
                what, answer = f"base {body.job_id}", body.base
            case RecordRegistered():
                what, answer = f"version {body.job_id}", body.failure is None
            case RecordFile():
                what = f"file {body.file_id}"
            case RecordErasedPart():
                self.erased.add((envelope.key, body.part))
                return
            case _:
                return
        self.reports[what] += 1
        if not self._answers[what].done():
            self._answers[what].set_result(answer)

    async def close(self, tenant: str) -> None:
        """Have no jobs of a tenant any more: those that wait end at once, others when they can."""
        self._closed.add(tenant)
        for what, answer in self._answers.items():
            if f"-{tenant}-" in what and not (what.startswith("version") or answer.done()):
                answer.set_result(None)
        await asyncio.gather(*self._ends[tenant])

    async def run(self, keeper: TenantClient, number: int) -> None:
        if keeper.name not in self._closed:
            ended = asyncio.Future[None]()
            self._ends[keeper.name].append(ended)
            await self._train(keeper, number)
            ended.set_result(None)

    async def _train(self, keeper: TenantClient, number: int) -> None:
        """A job, from its pins to its end; hasty ones end while they wait."""
        rng, job_id = self.log.chance(f"job {number}"), f"ftjob-{keeper.name}-{number}"
        kept = keeper.files.files.items()
        # files of other purposes are refused before there is a job
        names = sorted(name for name, file in kept if file.purpose == "fine-tune") or ["file-none"]
        training, second, third = (rng.choice(names) for _ in range(3))
        spec = PrepareSpec(
            base_id=BASE.base_id,
            base_sha256=BASE.sha256,
            max_length=rng.choice((512, 512, 1_024)),
            length_policy="reject",
            validation_fraction_ppm=rng.choice((100_000, 100_000, 50_000)),
            seed=42,
        )
        terms = PinTerms(
            training_file=training,
            validation_file=second if rng.random() < 0.3 else None,
            spec=spec,
            mixture=(MixedFile(file_id=third, weight_ppm=500_000),) if rng.random() < 0.3 else (),
        )
        start = rng.choice((None, keeper.any_version(rng)))
        ask, jobs = keeper.ask, keeper.jobs
        files, base = (self._answers[f"{what} {job_id}"] for what in ("job", "base"))
        await ask("dataset", PinDataset(job_id=job_id, terms=terms), jobs)
        wanted = rng.choice((BASE.sha256,) * 3 + (DRIFTED,))
        await ask("model", PinBase(job_id=job_id, base_id=BASE.base_id, base_sha256=wanted), jobs)
        if start is not None:
            await ask("model", KeepVersion(job_id=job_id, model_id=start), jobs)
        if rng.randrange(100) < self.plan.hasty:
            self.log.broker.tally.add("job left early")
            await keeper.port.sleep(rng.randint(0, 4_000))
        elif await files and await base:
            await keeper.port.sleep(rng.randint(0, 4_000))
            again = rng.choice(sorted(keeper.models.versions) or [""])
            if again and rng.random() < 0.4:
                await self._judge(keeper, job_id, again, wanted)
            else:
                await self._register(keeper, job_id, start, wanted)
            await self._answers[f"version {job_id}"]
        await ask("dataset", UnpinDataset(job_id=job_id), jobs)
        await ask("model", ReleaseVersion(job_id=job_id), jobs)

    async def judge_again(self, keeper: TenantClient) -> None:
        """The gate judges what people keep in quarantine."""
        held = sorted(name for name, each in keeper.models.versions.items() if each.held_back)
        if held and keeper.name not in self._closed:
            await self._judge(keeper, f"ftjob-{keeper.name}-again", held[0], BASE.sha256)

    async def _judge(
        self, keeper: TenantClient, job_id: str, model_id: str, base_sha256: str
    ) -> None:
        rng = self.log.chance(f"verdict of {job_id}")
        run = GateRun(
            model_id=model_id,
            job_id=job_id,
            base_sha256=base_sha256,
            verdict=rng.choice(("pass", "block", "inconclusive")),
            scores_sha256=sha_of(job_id),
            unusable=rng.random() < 0.2,
        )
        await keeper.ask("model", RecordGateRun(run=run), keeper.jobs)

    async def _register(
        self, keeper: TenantClient, job_id: str, start: str | None, base_sha256: str
    ) -> None:
        """Register what was trained; now and then under a name that another job has registered."""
        rng = self.log.chance(f"version of {job_id}")
        rotten = is_rotten(self.log, self.plan, job_id)
        if rotten:
            self.log.broker.tally.add("adapter refused")
        adapter = []
        for name, data in (PICKLE if rotten else FILES).items():
            blob = f"t/{keeper.name}/jobs/{job_id}/{name}"
            keeper.storage.bodies[blob] = data
            sha = sha256(data).hexdigest()
            adapter.append(BlobFile(name=name, blob=blob, sha256=sha, bytes=len(data)))
        registered = sorted(keeper.models.versions)
        name = rng.choice(registered) if registered and rng.random() < 0.15 else f"ft:{job_id}"
        is_start = start in keeper.models.versions
        lineage = Lineage(
            job_id=job_id,
            base_id=BASE.base_id,
            base_sha256=base_sha256,
            dataset_version="",
            training_sha256=sha_of(job_id),
            config_sha256=sha_of(job_id),
            steps=1,
            verdict=rng.choice(("pass", "pass", "pass", "inconclusive", "block")),
            scores_sha256=sha_of(job_id),
            start_id=start if is_start else None,
            unusable=rng.random() < 0.1,
        )
        terms = VersionTerms(
            model_id=name, series=rng.choice(SERIES), lineage=lineage, author=rng.choice(KEYS)
        )
        await keeper.ask("model", RegisterVersion(terms=terms, adapter=tuple(adapter)), keeper.jobs)
