"""The train role: `python -m tunery.ml.train`, its checkpoints and its adapter."""

import logging
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from schemas.pool import ReportCheckpoint
from schemas.reasons import skipping
from schemas.telemetry import LogLine, Step
from schemas.training import (
    AttemptStart,
    BlobFile,
    Checkpoint,
    SkippedCheckpoint,
    TrainResult,
    TrainWork,
)
from services.trainer.domain.state import Grant
from services.trainer.effect.attempt import Line, Tools
from services.trainer.effect.storage import fetch, upload
from services.trainer.settings import TrainerSettings
from tunery.runtime.blobs.abstract import BlobCorrupt, BlobMissing
from tunery.runtime.telemetry.logs import log_event
from tunery.work.spec import Candidate, Hyper, TrainSpec

PPM = 1_000_000
PPB = 1_000_000_000
MODULE = "tunery.ml.train"
LOG: Final = logging.getLogger(__name__)


class Training:
    """Program of a lease in role train."""

    def __init__(
        self, grant: Grant, work: TrainWork, tools: Tools, settings: TrainerSettings
    ) -> None:
        self._grant, self._work, self._tools, self._settings = grant, work, tools, settings
        self._skipped: list[SkippedCheckpoint] = []
        self._finished: Line | None = None
        self._last: Step | None = None
        self._started_monotonic_ms = 0

    async def prepare(self, folder: Path) -> tuple[str, ...]:
        prepared, tools = self._work.prepared, self._tools
        train, valid = folder / "train.safetensors", folder / "valid.safetensors"
        await fetch(tools, prepared.train_blob, train, prepared.train_sha256)
        if prepared.validation_rows:
            await fetch(tools, prepared.validation_blob, valid, prepared.validation_sha256)
        candidate = await self._newest_checkpoint(folder)
        spec = TrainSpec(
            base_dir=self._work.base_path,
            base_id=self._work.base_id,
            base_sha256=self._work.base_sha256,
            train_shards=(str(train),),
            valid_shards=(str(valid),) if prepared.validation_rows else (),
            out_dir=str(folder / "out"),
            resume=(candidate,) if candidate else (),
            hyper=_hyper(self._work),
            precision=self._work.hyper.precision,
            threads=self._settings.threads,
            checkpoint_every_steps=self._work.hyper.checkpoint_every_steps,
            checkpoint_every_ms=self._work.hyper.checkpoint_every_ms,
            keep_checkpoints=max(2, self._work.hyper.keep_checkpoints),
        )
        path = folder / "spec.json"
        path.write_bytes(msgspec.json.encode(spec))
        return ("-m", MODULE, str(path))

    async def heard(self, line: Line, elapsed_ms: int) -> AttemptStart | None:
        match line["type"]:
            case "started":
                self._started_monotonic_ms = self._tools.runtime.clock.monotonic_ms()
                return self._started(line)
            case "step":
                self._last = self._step(line)
                await self._tools.reports.telemetry(self._last)
            case "eval" if self._last is not None:
                evaluated = replace(self._last, valid_loss=line["valid_loss"])
                await self._tools.reports.telemetry(evaluated)
            case "spike":
                await self._tools.reports.telemetry(self._spike(line))
            case "checkpoint":
                await self._checkpoint(line)
            case "finished":
                self._finished = line
            case _:
                pass
        return None

    async def result(self) -> TrainResult:
        line = self._finished
        if line is None:
            raise FileNotFoundError("the training ended well and named no adapter")
        folder = Path(line["adapter_dir"])
        files = [await self._upload("adapters", folder, file) for file in line["files"]]
        loss = line["final_loss"]
        return TrainResult(
            adapter=tuple(files),
            config_sha256=line["config_sha256"],
            steps=line["steps"],
            tokens=line["tokens"],
            final_loss_ppm=None if loss is None else round(PPM * loss),
        )

    async def _newest_checkpoint(self, folder: Path) -> Candidate | None:
        """Fetch the newest checkpoint that is whole; name those that are not."""
        for checkpoint in self._grant.checkpoints:
            # by hash: two attempts may have checkpointed at the same step
            target = folder / "resume" / checkpoint.manifest_sha256
            target.mkdir(parents=True, exist_ok=True)
            try:
                for file in checkpoint.files:
                    await fetch(self._tools, file.blob, target / file.name, file.sha256)
            except (BlobCorrupt, BlobMissing) as error:
                missing = isinstance(error, BlobMissing)
                reason = skipping("blob_missing" if missing else "blob_corrupt")
                manifest = checkpoint.manifest_sha256
                self._skipped.append(SkippedCheckpoint(manifest_sha256=manifest, reason=reason))
                continue
            return Candidate(dir=str(target), manifest_sha256=checkpoint.manifest_sha256)
        return None

    def _started(self, line: Line) -> AttemptStart:
        self._skipped += [
            SkippedCheckpoint(manifest_sha256=skip["manifest_sha256"], reason=skipping("unusable"))
            for skip in line["skipped"]
        ]
        return AttemptStart(
            loaded=line["loaded_manifest"],
            loaded_step=line["resumed_from_step"],
            skipped=tuple(self._skipped),
            total_steps=line["total_steps"],
        )

    async def _checkpoint(self, line: Line) -> None:
        """Store it, then report it. Nothing for one that went while an outage lasted."""
        folder = Path(line["dir"])
        try:
            files = [await self._upload("checkpoints", folder, file) for file in line["files"]]
        except FileNotFoundError:  # training goes on meanwhile, and keeps its newest ones only
            log_event(
                LOG, logging.WARNING, "checkpoint went before it was stored", step=line["step"]
            )
            return
        captured_ms = max(0, line["captured_monotonic_ms"] - self._started_monotonic_ms)
        checkpoint = Checkpoint(
            attempt=self._grant.attempt,
            step=line["step"],
            epoch_ppm=round(PPM * line["epoch"]),
            tokens=line["tokens"],
            manifest_sha256=line["manifest_sha256"],
            files=tuple(files),
            captured_ms=captured_ms,
        )
        report = ReportCheckpoint(
            token=self._grant.token, incarnation=self._tools.incarnation, checkpoint=checkpoint
        )
        await self._tools.reports.fact(report, self._grant.tenant)

    async def _upload(self, kind: str, folder: Path, file: dict[str, Any]) -> BlobFile:
        stored = await upload(self._tools, self._grant, kind, folder / file["name"], file["sha256"])
        return BlobFile(
            name=file["name"], blob=stored.key, sha256=stored.sha256, bytes=stored.bytes
        )

    def _step(self, line: Line) -> Step:
        return Step(
            tenant=self._grant.tenant,
            job_id=self._grant.job_id,
            attempt=self._grant.attempt,
            step=line["step"],
            total_steps=line["total_steps"],
            loss=line["loss"],
            accuracy=line["mean_token_accuracy"],
            grad_norm=line["grad_norm"],
            learning_rate=line["lr"],
            tokens=line["tokens"],
            elapsed_ms=line["elapsed_ms"],
        )

    def _spike(self, line: Line) -> LogLine:
        return LogLine(
            tenant=self._grant.tenant,
            job_id=self._grant.job_id,
            attempt=self._grant.attempt,
            level="warn",
            text=f"step {line['step']}: {line['message']} (loss {line['loss']:.3f})",
        )


def _hyper(work: TrainWork) -> Hyper:
    hyper = work.hyper
    return Hyper(
        n_epochs=hyper.n_epochs,
        batch_size=hyper.batch_size,
        learning_rate=hyper.learning_rate_ppb / PPB,
        rank=hyper.rank,
        alpha=hyper.alpha,
        dropout=hyper.dropout_ppm / PPM,
        max_length=hyper.max_length,
        warmup=hyper.warmup_ppm / PPM,
        weight_decay=hyper.weight_decay_ppm / PPM,
        seed=hyper.seed,
    )
