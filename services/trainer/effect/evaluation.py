"""The eval role: `python -m tunery.ml.score`, and the scores it leaves."""

from hashlib import sha256
from pathlib import Path
from shutil import copyfile
from typing import Final

import msgspec
from msgspec.structs import replace

from schemas.benchmark import Benchmark
from schemas.telemetry import Progress
from schemas.training import AttemptStart, EvalResult, EvalWork
from schemas.units import PPM
from services.trainer.domain.state import Grant
from services.trainer.effect.environment import accelerators
from services.trainer.effect.program import Program, Tools
from services.trainer.settings import TrainerSettings
from tunery.confinement.taking import below, opened_within
from tunery.measures.declaration import JUDGE
from tunery.platform.blobs.base_files import CONFIG
from tunery.work.codec import decode_scores, encode_scores
from tunery.work.events import (
    AnyWorkEvent,
    FileDigest,
    ScoringFinished,
    ScoringProgressed,
    ScoringStarted,
)
from tunery.work.scores import Judgement
from tunery.work.spec import BenchmarkFile, ObjectiveTerms, ScoreSpec

OWN_ANSWER_TOKENS_MAX: Final = 128
NO_JUDGE: Final = Judgement(
    model="", instruction="", labels_sha256="", labelled=(), rows=(), problem="judge_unconfigured"
)
TOKENIZER: Final = "tokenizer.json"
JUDGED: Final = "judged"  # the agent's own folder in that of the lease
BASE_SCORES: Final = "base-scores"  # kept next to the attempts' folders


class Evaluation(Program):
    """Program of a lease in role eval."""

    module = "tunery.ml.score"

    def __init__(
        self, grant: Grant, work: EvalWork, tools: Tools, settings: TrainerSettings
    ) -> None:
        super().__init__(grant, tools, settings)
        self._work = work
        self._finished: ScoringFinished | None = None
        self._asks_judge = False
        self._is_first_look = work.scored is None
        self._asks_guard = self._is_first_look and any(
            wanted.kind == "safety" for wanted in work.benchmarks
        )

    async def write_inputs(self, folder: Path) -> ScoreSpec:
        """Fetch adapter and validation rows. Raises as `Program.prepare` does."""
        work, prepared = self._work, self._work.prepared
        valid, prompts = folder / "valid.safetensors", folder / "validation.jsonl"
        if prepared.validation_rows:
            await self.fetch(prepared.validation_blob, valid, prepared.validation_sha256)
            await self.fetch(prepared.prompts_blob, prompts, prepared.prompts_sha256)
        scored = None if work.scored is None else folder / "scored.json"
        if work.scored is not None and scored is not None:
            await self.fetch(work.scored.blob, scored, work.scored.sha256)
        adapter = folder / "adapter"
        adapter.mkdir()
        for file in work.adapter:
            await self.fetch(file.blob, below(adapter, file.name), file.sha256)
        benchmarks = [
            await self._benchmark(folder, number, wanted)
            for number, wanted in enumerate(work.benchmarks)
        ]
        grader, measures = self.open_json(work.grader), self.open_json(work.measures)
        if self._is_first_look and measures is not None:
            self._asks_judge = JUDGE in msgspec.json.decode(measures)
        spec = ScoreSpec(
            base_dir=work.base_path,
            tokenizer_dir=_own_tokenizer(adapter, Path(work.base_path)),
            base_sha256=work.base_sha256,
            adapter_dir=str(adapter),
            out=str(folder / "scores.json"),
            items_max=_least(self.settings.gate_questions, work.questions_max),
            prompts_max=_least(self.settings.gate_prompts, work.prompts_max),
            valid_shards=(str(valid),) if prepared.validation_rows else (),
            valid_rows=str(prompts) if prepared.validation_rows else None,
            precision=work.precision,
            threads=work.threads or self.settings.threads,
            accelerators=accelerators(self.grant),
            **ObjectiveTerms.read_log(work),
            base_scores_dir=str(folder.parent.parent / BASE_SCORES),
            grader=grader,
            score_socket=await self.open_scores(folder, grader),
            score_calls_max=self.settings.score_calls_max,
            measures=measures,
            measured_rows=work.measured_rows,
            benchmarks=tuple(benchmarks),
            benchmark_items=work.benchmark_items,
            share_ppm=work.share_ppm,
            scored=None if scored is None else str(scored),
        )
        own = self.open_prompts(work.prompts)
        if not own:
            return spec
        return replace(spec, prompts=own, answer_tokens_max=OWN_ANSWER_TOKENS_MAX, own_prompts=True)

    async def _benchmark(self, folder: Path, number: int, wanted: Benchmark) -> BenchmarkFile:
        """Fetch the file of a benchmark. Raises as `write_inputs` does."""
        path = folder / f"benchmark-{number}.jsonl"
        await self.fetch(wanted.blob, path, wanted.sha256)
        return BenchmarkFile(name=wanted.name, path=str(path), sha256=wanted.sha256)

    async def handle(self, event: AnyWorkEvent) -> AttemptStart | None:
        """Pass progress on as telemetry, keep the result."""
        match event:
            case ScoringStarted():
                return AttemptStart(loaded=None, loaded_step=0, skipped=(), total_steps=0)
            case ScoringProgressed():
                await self.report(self._progress(event))
            case ScoringFinished():
                self._finished = event
            case _:
                pass
        return None

    async def result(self) -> EvalResult:
        """Store the scores.

        Raises FileNotFoundError when the process named none; BlobCorrupt, BlobsUnavailable.
        """
        finished = self._finished
        if finished is None:
            raise FileNotFoundError("the scoring process ended with status 0 but wrote no scores")
        path = Path(finished.results)
        folder = path.parent
        file = FileDigest(name=path.name, sha256=finished.sha256, bytes=finished.bytes)
        if self._asks_judge or (self._asks_guard and self.tools.guard is not None):
            folder, file = await self._judge(folder, file)
        return EvalResult(scores=await self.upload("scores", folder, file))

    async def _judge(self, folder: Path, file: FileDigest) -> tuple[Path, FileDigest]:
        """Add to a file of scores what judge and guard say; that file, and its folder."""
        with opened_within(self.folder, folder / file.name) as opened:
            content = opened.read_bytes()
        if sha256(content).hexdigest() != file.sha256:
            return folder, file  # it is refused when it is stored
        scores = decode_scores(content)
        judge, guard = self.tools.judge, self.tools.guard
        if self._asks_judge:
            judgement = NO_JUDGE if judge is None else await judge.compare(scores.rows)
            scores = replace(scores, judgement=judgement)
        if guard is not None:
            benchmarks = [await guard.judge(asked) for asked in scores.benchmarks]
            scores = replace(scores, benchmarks=tuple(benchmarks))
        content = encode_scores(scores)
        judged = self.folder / JUDGED
        judged.mkdir(mode=0o700)
        (judged / file.name).write_bytes(content)
        digest = sha256(content).hexdigest()
        return judged, FileDigest(name=file.name, sha256=digest, bytes=len(content))

    def _progress(self, event: ScoringProgressed) -> Progress:
        return Progress(
            tenant=self.grant.tenant,
            job_id=self.grant.job_id,
            attempt=self.grant.attempt,
            stage=event.stage,
            done_ppm=PPM * event.done // max(1, event.total),
        )


def _own_tokenizer(adapter: Path, base: Path) -> str | None:
    """Return the folder of an adapter's own tokenizer; None: it has none.

    The gate asks both sides with it. transformers finds the kind of tokenizer in `config.json`.
    """
    if not (adapter / TOKENIZER).is_file():
        return None
    if not (adapter / CONFIG).is_file():
        copyfile(base / CONFIG, adapter / CONFIG)
    return str(adapter)


def _least(*bounds: int | None) -> int | None:
    """Return the lowest bound; None: there is none."""
    return min((bound for bound in bounds if bound is not None), default=None)
