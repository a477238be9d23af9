"""The eval role: `python -m tunery.ml.score`, and the scores it leaves."""

from pathlib import Path
from typing import Final

import msgspec

from schemas.telemetry import Progress
from schemas.training import AttemptStart, BlobFile, EvalResult, EvalWork
from services.trainer.domain.state import Grant
from services.trainer.effect.attempt import Line, Tools
from services.trainer.effect.storage import fetch, upload
from services.trainer.effect.training import PPM
from services.trainer.settings import TrainerSettings
from tunery.work.spec import ScoreSpec

MODULE: Final = "tunery.ml.score"
GENERATED_MAX: Final = 8
NEW_TOKENS_MAX: Final = 40
ROWS_MAX: Final = 32


class Evaluating:
    """Program of a lease in role eval."""

    def __init__(
        self, grant: Grant, work: EvalWork, tools: Tools, settings: TrainerSettings
    ) -> None:
        self._grant, self._work, self._tools, self._settings = grant, work, tools, settings
        self._finished: Line | None = None

    async def prepare(self, folder: Path) -> tuple[str, ...]:
        prepared, tools = self._work.prepared, self._tools
        valid, prompts = folder / "valid.safetensors", folder / "validation.jsonl"
        if prepared.validation_rows:
            await fetch(tools, prepared.validation_blob, valid, prepared.validation_sha256)
            await fetch(tools, prepared.prompts_blob, prompts, prepared.prompts_sha256)
        adapter = folder / "adapter"
        adapter.mkdir()
        for file in self._work.adapter:
            await fetch(tools, file.blob, adapter / file.name, file.sha256)
        spec = ScoreSpec(
            base_dir=self._work.base_path,
            base_sha256=self._work.base_sha256,
            adapter_dir=str(adapter),
            out=str(folder / "scores.json"),
            valid_shards=(str(valid),) if prepared.validation_rows else (),
            valid_rows=str(prompts) if prepared.validation_rows else None,
            threads=self._settings.threads,
            valid_rows_max=ROWS_MAX,
            generated_max=GENERATED_MAX,
            new_tokens_max=NEW_TOKENS_MAX,
        )
        path = folder / "spec.json"
        path.write_bytes(msgspec.json.encode(spec))
        return ("-m", MODULE, str(path))

    async def heard(self, line: Line, elapsed_ms: int) -> AttemptStart | None:
        match line["type"]:
            case "started":
                return AttemptStart(loaded=None, loaded_step=0, skipped=(), total_steps=0)
            case "progress":
                await self._tools.reports.telemetry(self._progress(line))
            case "finished":
                self._finished = line
            case _:
                pass
        return None

    async def result(self) -> EvalResult:
        line = self._finished
        if line is None:
            raise FileNotFoundError("the evaluation ended well and named no scores")
        path = Path(line["results"])
        stored = await upload(self._tools, self._grant, "scores", path, line["sha256"])
        scores = BlobFile(name=path.name, blob=stored.key, sha256=stored.sha256, bytes=stored.bytes)
        return EvalResult(scores=scores)

    def _progress(self, line: Line) -> Progress:
        return Progress(
            tenant=self._grant.tenant,
            job_id=self._grant.job_id,
            attempt=self._grant.attempt,
            stage=line["stage"],
            done_ppm=PPM * line["done"] // max(1, line["total"]),
        )
