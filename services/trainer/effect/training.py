"""The train role: `python -m tunery.ml.train`, its checkpoints and its adapter."""

import asyncio
import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import astuple, replace

from schemas.ids import derived_id
from schemas.pool import ReportCheckpoint
from schemas.reasons import skipping
from schemas.records import build_from
from schemas.telemetry import LogLine, Step
from schemas.training import (
    AttemptStart,
    Checkpoint,
    EnvironmentChange,
    SkippedCheckpoint,
    TrainResult,
    TrainWork,
)
from schemas.units import PPM, Ms
from services.trainer.domain.state import Grant
from services.trainer.effect.environment import accelerators, devices_of_ranks
from services.trainer.effect.evaluation import BASE_SCORES
from services.trainer.effect.gang import Gang
from services.trainer.effect.gang_following import FollowingGang
from services.trainer.effect.gang_leading import LeadingGang
from services.trainer.effect.program import Program, Tools
from services.trainer.settings import TrainerSettings
from tunery.confinement.taking import below
from tunery.data.tokens.base_variants import write_tokenizer
from tunery.data.tokens.tokenizer import BaseUnusable
from tunery.runtime.blobs.abstract import BlobCorrupt, BlobMissing
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.telemetry.traces import note_span, traced
from tunery.runtime.telemetry.trail import current_trail
from tunery.work.events import (
    AnyWorkEvent,
    Checkpointed,
    Evaluated,
    Finished,
    LossSpiked,
    Noted,
    Sampled,
    Started,
    StepCompleted,
)
from tunery.work.exits import WorkError
from tunery.work.own_chat import OwnChat
from tunery.work.session import SessionSpec
from tunery.work.software import installed_software
from tunery.work.spec import (
    CHECKPOINTS_KEPT_MIN,
    Engine,
    Hyper,
    ResumeCandidate,
    StartingAdapter,
    TrainSpec,
    VariantsSpec,
)

LOG: Final = logging.getLogger(__name__)
# folders next to those of leases: other attempts continue with what is in them
REFERENCES: Final = "references"
PROOFS: Final = "proofs"
TOKENIZER: Final = "tokenizer"


class Training(Program):
    """Program of a lease in role train."""

    module = "tunery.ml.train"

    def __init__(
        self, grant: Grant, work: TrainWork, tools: Tools, settings: TrainerSettings
    ) -> None:
        super().__init__(grant, tools, settings)
        self._work = work
        self._skipped: list[SkippedCheckpoint] = []
        self._finished: Finished | None = None
        self._last_step: Step | None = None
        self._started_monotonic_ms = 0
        self._named_ranks: set[int] = set()
        self._newest: Checkpoint | None = None  # of this attempt
        self._meter, self._lease = tools.meter, grant.token.lease
        hardware = grant.lease.hardware
        self._node_type = hardware.accelerator if hardware is not None else ""
        self._work_id = speed_class(work, grant.slots)
        if len(grant.members) > 1:
            self.gang = _gang(grant, tools, settings)

    async def prepare(self, folder: Path) -> tuple[str, ...]:
        """Prepare as `Program`, with access for a process that continues as the evaluation."""
        arguments = await super().prepare(folder)
        if self.access.ranks is None:
            shared = folder.parent.parent / BASE_SCORES
            shared.mkdir(mode=0o700, exist_ok=True)
            self.access = dataclasses.replace(self.access, write=(*self.access.write, shared))
        return arguments

    async def write_inputs(self, folder: Path) -> TrainSpec | VariantsSpec | SessionSpec:
        """Fetch packed rows and the newest checkpoint. Raises as `Program.prepare` does."""
        spec = await self._write_training(folder)
        if not self._work.variants:
            return spec
        return VariantsSpec(training=spec, hypers=tuple(map(Hyper.from_log, self._work.variants)))

    async def _write_training(self, folder: Path) -> TrainSpec:
        work, prepared = self._work, self._work.prepared
        train, valid = folder / "train.safetensors", folder / "valid.safetensors"
        await self.fetch(prepared.train_blob, train, prepared.train_sha256)
        if prepared.validation_rows:
            await self.fetch(prepared.validation_blob, valid, prepared.validation_sha256)
        candidate = await self._newest_checkpoint(folder)
        devices = devices_of_ranks(self.grant, self.tools.device_names)
        grader = self.open_json(work.grader)
        return build_from(
            TrainSpec,
            work,
            work.hyper,
            base_dir=work.base_path,
            tokenizer_dir=await self._own_tokenizer(folder / TOKENIZER),
            train_shards=(str(train),),
            valid_shards=(str(valid),) if prepared.validation_rows else (),
            out_dir=str(folder / "out"),
            resume=(candidate,) if candidate else (),
            hyper=Hyper.from_log(work.hyper),
            threads=work.hyper.threads or self.settings.threads,
            accelerators=accelerators(self.grant),
            checkpoint_share=work.hyper.checkpoint_share_ppm / PPM,
            keep_checkpoints=max(CHECKPOINTS_KEPT_MIN, work.hyper.keep_checkpoints),
            reference_dir=str(folder.parent.parent / REFERENCES),
            proof_dir=str(folder.parent.parent / PROOFS),
            start=await self._starting_adapter(folder / "start"),
            prompts=self.open_prompts(work.prompts),
            grader=grader,
            score_socket=await self.open_scores(folder, grader),
            score_calls_max=self.settings.score_calls_max,
            ranks=self.grant.placement.slots,
            engine=Engine.from_log(work.hyper, self.grant.placement.slots),
            devices=devices,
        )

    async def handle(self, event: AnyWorkEvent) -> AttemptStart | None:
        """Pass steps on as telemetry, store checkpoints, keep the result.

        Raises BlobCorrupt, BlobsUnavailable.
        """
        if not self.leads:  # the first rank says it
            return self._start_report(event, {}) if isinstance(event, Started) else None
        match event:
            case Started():
                devices = self.grant.member.devices if accelerators(self.grant) else ()
                self._meter.begin(self._lease, event, devices, self._now_ms())
                self._started_monotonic_ms = self.tools.runtime.clock.monotonic_ms()
                self._note_work("start training", event.elapsed_ms, step=event.resumed_from_step)
                software = await asyncio.to_thread(installed_software)
                return self._start_report(event, software)
            case StepCompleted():
                self._meter.step(self._lease, event, self._now_ms())
                self._last_step = self._step(event)
                await self.report(self._last_step)
                await self._name_slow_rank(event)
            case Evaluated() if self._last_step is not None:
                await self.report(
                    replace(
                        self._last_step,
                        valid_loss=event.valid_loss,
                        valid_accuracy=event.valid_accuracy,
                        valid_reward_accuracy=event.valid_reward_accuracy,
                    )
                )
            case LossSpiked():
                self._meter.spike()
                text = f"{_when(event)}: {event.message} (loss {event.loss:.3f})"
                await self.report(self._line("warn", text))
            case Noted():
                await self.report(self._line("info", f"{_when(event)}: {event.message}"))
            case Sampled():
                text = f"to {event.prompt!r} the model answers {event.answer!r}"
                await self.report(self._line("info", f"{_when(event)}: {text}"))
            case Checkpointed():
                took_ms = max(event.write_ms, event.background_ms)
                self._note_work("write checkpoint", took_ms, step=event.step)
                await self._store_checkpoint(event)
            case Finished():
                took_ms = self.tools.runtime.clock.monotonic_ms() - self._started_monotonic_ms
                self._note_work("train", took_ms, steps=event.steps)
                self._finished = event
            case _:
                pass
        return None

    async def result(self) -> TrainResult:
        """Store the adapter.

        Raises FileNotFoundError when the process named none; BlobCorrupt, BlobsUnavailable.
        """
        finished = self._finished
        if finished is None:
            raise FileNotFoundError("the training process ended with status 0 but wrote no adapter")
        folder = Path(finished.adapter_dir)
        files = [await self.upload("adapters", folder, file) for file in finished.files]
        return build_from(
            TrainResult,
            finished,
            adapter=tuple(files),
            final_loss_ppm=_ppm(finished.final_loss),
            losses_ppm=tuple(map(_ppm, finished.valid_losses)),
        )

    async def _starting_adapter(self, folder: Path) -> StartingAdapter | None:
        """Fetch the adapter that the training begins with. Raises WorkError when it was deleted."""
        start = self._work.start
        if start is None:
            return None
        folder.mkdir()
        try:
            for file in start.files:
                await self.fetch(file.blob, below(folder, file.name), file.sha256)
        except BlobMissing as error:
            message = f"{start.model_id}, which the training begins with, was deleted"
            raise WorkError("user", message, "Submit a job that begins with another.") from error
        return StartingAdapter(name=start.model_id, dir=str(folder), sha256=start.sha256)

    async def _own_tokenizer(self, folder: Path) -> str | None:
        """Write the tokenizer of a job with a chat template or end tokens of its own.

        Raises WorkError where they do not fit the base model, OSError.
        """
        if self._work.chat is None:
            return None
        base = Path(self._work.base_path)
        chat = OwnChat.opened(self._work.chat, self.tools.runtime.seal.open)
        try:
            return str(await asyncio.to_thread(write_tokenizer, base, chat, folder))
        except BaseUnusable as error:
            message = f"the chat template or the end tokens cannot be used: {error}"
            advice = "Correct training.chat_template or training.eot_tokens."
            raise WorkError("user", message, advice) from error

    async def _newest_checkpoint(self, folder: Path) -> ResumeCandidate | None:
        """Fetch the newest checkpoint that is whole; remember those that are not."""
        for checkpoint in self.grant.checkpoints:
            # by hash: two attempts may have checkpointed at the same step
            target = folder / "resume" / checkpoint.manifest_sha256
            try:
                for file in checkpoint.files:
                    path = below(target, file.name)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    await self.fetch(file.blob, path, file.sha256)
            except (BlobCorrupt, BlobMissing) as error:
                missing = isinstance(error, BlobMissing)
                reason = skipping("blob_missing" if missing else "blob_corrupt")
                manifest = checkpoint.manifest_sha256
                skipped = SkippedCheckpoint(manifest_sha256=manifest, reason=reason)
                self._skipped.append(skipped)
                continue
            return ResumeCandidate(dir=str(target), manifest_sha256=checkpoint.manifest_sha256)
        return None

    def _start_report(self, event: Started, software: Mapping[str, str]) -> AttemptStart:
        """Build the start report for the pool. Texts of the process stay in this agent's log."""
        for skip in event.skipped:
            log_event(
                LOG,
                logging.WARNING,
                "checkpoint.unusable",
                manifest_sha256=skip.manifest_sha256,
                reason=skip.reason,
            )
        self._skipped += [
            SkippedCheckpoint(manifest_sha256=skip.manifest_sha256, reason=skipping("unusable"))
            for skip in event.skipped
        ]
        return AttemptStart(
            loaded=event.loaded_manifest,
            loaded_step=event.resumed_from_step,
            skipped=tuple(self._skipped),
            total_steps=event.total_steps,
            changes=tuple(
                EnvironmentChange(name=name, before=before, now=now)
                for name, before, now in event.environment_changes
            ),
            environment={**event.environment, **software},
        )

    async def _store_checkpoint(self, event: Checkpointed) -> None:
        """Store a checkpoint, then report it; not one that was deleted during an outage."""
        folder, clock = Path(event.dir), self.tools.runtime.clock
        began_ms = clock.monotonic_ms()
        try:
            with traced(current_trail(), "store checkpoint", "client", step=event.step):
                files = [await self.upload("checkpoints", folder, file) for file in event.files]
        except FileNotFoundError:  # training went on meanwhile, and keeps its newest ones only
            log_event(LOG, logging.WARNING, "checkpoint.deleted_before_upload", step=event.step)
            self._newest = None
            return
        checkpoint = build_from(
            Checkpoint,
            event,
            attempt=self.grant.attempt,
            epoch_ppm=round(PPM * event.epoch),
            files=tuple(files),
            captured_ms=max(0, event.captured_monotonic_ms - self._started_monotonic_ms),
        )
        await self._report_checkpoint(checkpoint)
        self._meter.store(self._lease, clock.monotonic_ms() - began_ms, self._now_ms())

    async def _report_checkpoint(self, checkpoint: Checkpoint) -> None:
        self._newest = checkpoint
        command = ReportCheckpoint(
            token=self.grant.token, incarnation=self.tools.incarnation, checkpoint=checkpoint
        )
        await self.tools.reports.fact(command, self.grant.tenant)

    async def _name_slow_rank(self, event: StepCompleted) -> None:
        """Say once of each rank that the others wait for it."""
        slowest = self._meter.slowest_rank(self._lease)
        if slowest is None or not slowest.is_slow or slowest.number in self._named_ranks:
            return
        self._named_ranks.add(slowest.number)
        text = (
            f"step {event.step}: rank {slowest.number} of {len(event.rank_ms)} takes "
            f"{slowest.ratio:.1f} times as long for a micro-batch as the others, which wait for it"
        )
        await self.report(self._line("warn", text))

    def _note_work(self, name: str, took_ms: Ms, **attributes: object) -> None:
        """A span of what the process has done until now: it has no network to say so itself."""
        begun_ms = self._now_ms() - took_ms
        note_span(current_trail(), name, "internal", begun_ms, None, **attributes)

    def _now_ms(self) -> Ms:
        return self.tools.runtime.clock.now_ms()

    def _step(self, event: StepCompleted) -> Step:
        return build_from(
            Step,
            event,
            self.grant,
            accuracy=event.mean_token_accuracy,
            busy_percent=self._meter.busy_percent(self._lease),
            node_type=self._node_type,
            work=self._work_id,
        )

    def _line(self, level: str, text: str) -> LogLine:
        return LogLine(
            tenant=self.grant.tenant,
            job_id=self.grant.job_id,
            attempt=self.grant.attempt,
            level=level,
            text=text,
        )


def _when(event: LossSpiked | Noted | Sampled) -> str:
    """Return the step in words; a variant counts its own steps."""
    step = f"step {event.step}"
    return step if event.variant is None else f"variant {event.variant}, {step}"


def _ppm(loss: float | None) -> int | None:
    return None if loss is None else round(PPM * loss)


def _gang(grant: Grant, tools: Tools, settings: TrainerSettings) -> Gang:
    common = grant, settings.fabric, tools.incarnation, tools.runtime
    if grant.node_id == grant.members[0].node_id:
        return LeadingGang(*common, tools.reports)
    return FollowingGang(*common)


def speed_class(work: TrainWork, slots: int) -> str:
    """Return an id that is equal for trainings with equal time per token on the same devices."""
    hyper, engine = work.hyper, Engine.from_log(work.hyper, slots)
    parts = (
        *(work.base_sha256, hyper.method, hyper.adaptation, hyper.precision, hyper.rank),
        *(hyper.batch_size, hyper.accumulation, hyper.max_length, hyper.packing, hyper.recompute),
        *(hyper.target_modules, hyper.num_generations, hyper.threads, slots),
        *(() if engine == Engine() else (str(astuple(engine)),)),
        *map(str, work.variants),
    )
    return derived_id(*map(str, parts))
