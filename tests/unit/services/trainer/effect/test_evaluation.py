"""An evaluation under a lease: what it fetches, what it passes on, what it stores."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from schemas import training
from schemas.benchmark import Benchmark
from services.trainer.adapters.processes import ProcessGroups
from services.trainer.effect.evaluation import Evaluation
from services.trainer.effect.program import Tools
from services.trainer.effect.reports import Reports
from services.trainer.settings import TrainerSettings
from simulator.control_plane.samples import PREPARED
from tests.unit.services.trainer.domain.test_evolve import WORK, grant
from tunery.confinement.taking import NotTaken
from tunery.platform.memory_servers import MemoryServers, memory_servers
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.work.codec import decode_score_spec
from tunery.work.events import ScoringFinished, ScoringProgressed, ScoringStarted

START = training.AttemptStart(loaded=None, loaded_step=0, skipped=(), total_steps=0)
CONTENT = b"content"
SHA256 = sha256(CONTENT).hexdigest()
ADAPTER = training.BlobFile(name="adapter.safetensors", blob="a", sha256=SHA256, bytes=len(CONTENT))


async def evaluation(
    folder: Path, validation_rows: int, **changed: Any
) -> tuple[Evaluation, MemoryServers]:
    servers = await memory_servers()
    blobs = servers.blobs
    assert isinstance(blobs, MemoryBlobs)
    prepared = replace(
        PREPARED,
        validation_rows=validation_rows,
        validation_sha256=SHA256,
        prompts_sha256=SHA256,
    )
    for key in ("a", prepared.validation_blob, prepared.prompts_blob):
        await blobs.put(key, CONTENT)
    work = replace(WORK, prepared=prepared, adapter=(ADAPTER,), **changed)
    runtime = servers.runtime("trainer")
    reports = Reports(runtime, "default")
    tools = Tools(runtime, ProcessGroups("mark"), reports, "a1", lambda: None)
    settings = TrainerSettings(id="a", pool="default", threads=2, work_dir=folder)
    program = Evaluation(grant(), work, tools, settings)
    program.folder = folder
    return program, servers


@pytest.mark.parametrize("rows", [0, 1])
async def test_validation_rows_are_fetched_where_there_are_any(tmp_path: Path, rows: int) -> None:
    program, _ = await evaluation(tmp_path, rows)
    arguments = await program.prepare(tmp_path)
    assert arguments == ("-m", "tunery.ml.score", str(tmp_path / "spec.json"))
    spec = decode_score_spec((tmp_path / "spec.json").read_bytes())
    assert (Path(spec.adapter_dir) / ADAPTER.name).read_bytes() == CONTENT
    assert (spec.threads, spec.items, spec.prompts) == (2, None, None)
    assert spec.base_scores_dir == str(tmp_path.parent.parent / "base-scores")
    assert len(spec.valid_shards) == rows
    assert (spec.valid_rows is not None) == bool(rows)
    for path in spec.valid_shards:
        assert Path(path).read_bytes() == CONTENT


async def test_security_no_file_of_an_adapter_is_written_outside_of_its_folder(
    tmp_path: Path,
) -> None:
    program, _ = await evaluation(tmp_path, 0)
    outside = replace(ADAPTER, name="../outside")
    program._work = replace(program._work, adapter=(outside,))
    with pytest.raises(NotTaken):
        await program.prepare(tmp_path)
    assert not (tmp_path / "outside").exists()


async def test_training_m10_a_run_is_scored_as_it_was_trained(tmp_path: Path) -> None:
    """A training in fp32 was judged in bf16, with as many threads as its node had."""
    program, _ = await evaluation(tmp_path, 0, precision="fp32", threads=3)
    await program.prepare(tmp_path)
    spec = decode_score_spec((tmp_path / "spec.json").read_bytes())
    assert (spec.precision, spec.threads) == ("fp32", 3)


async def test_measures_of_the_tenant_are_opened_for_the_process(tmp_path: Path) -> None:
    plain, servers = await evaluation(tmp_path, 1)
    sealed = servers.runtime("gateway").seal.seal(plain.grant.tenant, '["chrf"]', "measures")
    program, _ = await evaluation(tmp_path / "own", 1, measures=sealed, measured_rows=30)
    program = Evaluation(program.grant, program._work, plain.tools, plain.settings)
    spec = await plain.write_inputs(tmp_path)
    assert (spec.measures, spec.measured_rows) == (None, 0)
    (tmp_path / "own").mkdir()
    measured = await program.write_inputs(tmp_path / "own")
    assert (measured.measures, measured.measured_rows) == ('["chrf"]', 30)


async def test_first_hour_23_prompts_of_the_tenant_are_answered(tmp_path: Path) -> None:
    """In place of the bundled ones; which are answered again once the tenant is erased."""
    bundled, servers = await evaluation(tmp_path, 0)
    seal = servers.runtime("gateway").seal
    sealed = seal.seal(bundled.grant.tenant, '["Who?", "Why?"]', "prompts")
    work = replace(bundled._work, prompts=sealed)
    program = Evaluation(bundled.grant, work, bundled.tools, bundled.settings)
    for name, prompts, tokens in (("own", ("Who?", "Why?"), 128), ("erased", None, 40)):
        folder = tmp_path / name
        folder.mkdir()
        await program.prepare(folder)
        spec = decode_score_spec((folder / "spec.json").read_bytes())
        assert (spec.prompts, spec.answer_tokens_max) == (prompts, tokens)
        seal.destroy(bundled.grant.tenant)


async def test_scores_are_stored_under_the_attempt(tmp_path: Path) -> None:
    program, servers = await evaluation(tmp_path, 0)
    (tmp_path / "scores.json").write_bytes(CONTENT)
    assert await program.handle(ScoringStarted(items=1, prompts=0)) == START
    assert await program.handle(ScoringProgressed(stage="items_base", done=1, total=0)) is None
    results = str(tmp_path / "scores.json")
    await program.handle(ScoringFinished(results=results, sha256=SHA256, bytes=len(CONTENT)))
    scores = (await program.result()).scores
    assert (scores.name, scores.sha256, scores.bytes) == ("scores.json", SHA256, len(CONTENT))
    assert "job1/1" in scores.blob
    assert await servers.blobs.get(scores.blob, sha256=SHA256) == CONTENT


async def test_a_process_without_scores_has_no_result(tmp_path: Path) -> None:
    program, _ = await evaluation(tmp_path, 0)
    with pytest.raises(FileNotFoundError, match="wrote no scores"):
        await program.result()


async def test_benchmarks_are_fetched_and_named_with_their_hash(tmp_path: Path) -> None:
    asked = Benchmark(
        name="arc",
        task="arc",
        kind="choices",
        sha256=SHA256,
        blob="a",
        bytes=len(CONTENT),
        items=24,
    )
    program, _ = await evaluation(tmp_path, 0, benchmarks=(asked,), benchmark_items=100)
    spec = await program.write_inputs(tmp_path)
    (file,) = spec.benchmarks
    assert (file.name, file.sha256, spec.benchmark_items) == ("arc", SHA256, 100)
    assert Path(file.path).read_bytes() == CONTENT


async def test_first_hour2_u7_the_size_of_the_gate_is_a_setting_of_its_node(tmp_path: Path) -> None:
    program, _ = await evaluation(tmp_path, 0)
    sized = program.settings.model_copy(update={"gate_questions": 200, "gate_prompts": 0})
    short = replace(program._work, questions_max=200, prompts_max=2)
    for settings, work, size in (
        (program.settings, program._work, (None, None)),
        (program.settings, short, (200, 2)),
        (sized, short, (200, 0)),
    ):
        folder = tmp_path / str(size)
        folder.mkdir()
        asked = Evaluation(program.grant, work, program.tools, settings)
        spec = await asked.write_inputs(folder)
        assert (spec.items_max, spec.prompts_max) == size


async def test_a_further_look_goes_on_from_the_scores_before_and_asks_no_judge_again(
    tmp_path: Path,
) -> None:
    scored = training.BlobFile(name="scores.json", blob="a", sha256=SHA256, bytes=len(CONTENT))
    plain, servers = await evaluation(tmp_path, 1)
    sealed = servers.runtime("gateway").seal.seal(plain.grant.tenant, '["judge"]', "measures")
    for work, judged in (
        (replace(plain._work, measures=sealed), True),
        (replace(plain._work, measures=sealed, share_ppm=500_000, scored=scored), False),
    ):
        program = Evaluation(plain.grant, work, plain.tools, plain.settings)
        folder = tmp_path / str(judged)
        folder.mkdir()
        spec = await program.write_inputs(folder)
        assert program._asks_judge is judged
        assert (spec.scored is None) is judged
        assert spec.share_ppm == work.share_ppm
    assert spec.scored is not None
    assert Path(spec.scored).read_bytes() == CONTENT


async def test_bases_f7_both_sides_are_asked_with_the_tokenizer_of_the_version(
    tmp_path: Path,
) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text("{}")
    program, _ = await evaluation(tmp_path, 0, base_path=str(tmp_path / "base"))
    await program.prepare(tmp_path)
    assert decode_score_spec((tmp_path / "spec.json").read_bytes()).tokenizer_dir is None
    for number, files in enumerate((("tokenizer.json",), ("tokenizer.json", "config.json"))):
        own = tuple(replace(ADAPTER, name=name) for name in files)
        program._work = replace(program._work, adapter=(ADAPTER, *own))
        folder = tmp_path / str(number)
        folder.mkdir()
        await program.prepare(folder)
        spec = decode_score_spec((folder / "spec.json").read_bytes())
        assert spec.tokenizer_dir == spec.adapter_dir
        config = (Path(spec.adapter_dir) / "config.json").read_bytes()
        assert config == (CONTENT if number else b"{}")
