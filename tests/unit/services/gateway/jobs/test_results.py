"""The metrics of an ended job, as a file: given steps, then CSV and the command that names it."""

import csv
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.dataset import FileContent, FileRegistered, RegisterFile
from schemas.integrations import Integration
from schemas.job import JobEnded
from schemas.sealed import Sealed
from schemas.storage import FileTerms
from services.gateway.jobs.results import event_file, mirror_files, offline_run, results
from services.gateway.views.projections.journals import project
from services.gateway.views.reading import views_of
from services.gateway.views.tables.jobs import STEPS, JobRow, StepRow
from services.gateway.views.telemetry import TELEMETRY_ROWS
from services.gateway.views.todos import result_file_id
from tests.unit.services.gateway.jobs.job_events import SUBMITTED, WHOLE_LIFE
from tests.unit.services.gateway.view_rows import header
from tunery.platform.memory_servers import memory_servers
from tunery.platform.ports import Runtime
from tunery.platform.seal.memory import MemoryKeyStore
from tunery.platform.seal.model_names import logged_name
from tunery.platform.seal.sealer import Sealer
from tunery.runtime.journal.reader import Position
from tunery.runtime.store.abstract import RowBatch
from tunery.runtime.verbs import Change, Done, Todo, Upsert

ENDED = WHOLE_LIFE[-1]
STEP = StepRow(
    tenant="acme",
    job_id="ftjob-1",
    step=0,
    id="",
    at=1,
    attempt=1,
    total_steps=3,
    loss=1.5,
    accuracy=0.25,
    valid_loss=None,
    valid_accuracy=None,
    learning_rate=2e-4,
    tokens=100,
    elapsed_ms=10,
    tokens_per_s=312.5,
    memory_bytes=2_170_000_000,
)


async def read_models(*changes: Change) -> Runtime:
    """A gateway's bundle whose read models have these rows."""
    runtime = (await memory_servers()).runtime("gateway")
    await runtime.store.ensure(TELEMETRY_ROWS.stored())
    batch = RowBatch(
        projection=TELEMETRY_ROWS.name,
        version=TELEMETRY_ROWS.version,
        partition=TELEMETRY_ROWS.partitions[0],
        expected=0,
        position=Position(1),
        changes=changes,
    )
    await runtime.store.commit(batch)
    return runtime


def step(number: int, **changed: Any) -> Upsert:
    return STEPS.insert(replace(STEP, step=number, **{"id": f"ftevent-{number}", **changed}))


async def run(runtime: Runtime) -> RegisterFile | None:
    assert isinstance(ENDED, JobEnded)
    effect = results(views_of(runtime.store), runtime.blobs, runtime.seal)
    sent = await effect.run(ENDED, "acme")
    if sent is None:
        return None
    assert (sent.stream, sent.key) == ("dataset", "acme")
    assert isinstance(sent.body, RegisterFile)
    return sent.body


async def test_repeated_steps_are_one_line_of_the_result_file() -> None:
    again = step(1, id="ftevent-9", loss=None)  # by a resumed attempt, later
    runtime = await read_models(step(0), again, step(2, valid_loss=1.25, valid_accuracy=0.75))
    file = await run(runtime)
    assert file is not None
    assert (file.terms.purpose, file.job_id) == ("fine-tune-results", "ftjob-1")
    assert file.content.blob.startswith(f"t/acme/results/{file.file_id}/")  # of this file alone
    assert runtime.seal.open(file.terms.name, "name") == "step_metrics.csv"
    data = await runtime.blobs.get(file.content.blob, sha256=file.content.sha256)
    assert len(data) == file.content.bytes
    lines = list(csv.DictReader(data.decode().splitlines()))
    assert [line["step"] for line in lines] == ["0", "1", "2"]
    assert [line["train_loss"] for line in lines] == ["1.5", "", "1.5"]
    assert [line["valid_loss"] for line in lines] == ["", "", "1.25"]
    assert [line["valid_mean_token_accuracy"] for line in lines] == ["", "", "0.75"]
    assert {line["train_accuracy"] for line in lines} == {"0.25"}
    speed = {(line["tokens_per_second"], line["peak_memory_bytes"]) for line in lines}
    assert speed == {("312.5", "2170000000")}


async def test_a_job_without_steps_has_no_file() -> None:
    assert await run(await read_models()) is None


async def test_a_file_that_is_there_is_not_written_again() -> None:
    runtime = await read_models(step(0))
    file = await run(runtime)
    assert file is not None
    (written, *_) = project(
        header("dataset"),
        FileRegistered(
            file_id=file.file_id,
            terms=file.terms,
            content=file.content,
        ),
    )
    runtime = await read_models(step(0), written)
    assert await run(runtime) is None


async def test_the_file_of_tensorboard_has_every_step_and_is_a_result_of_the_job() -> None:
    submitted = [change for event in WHOLE_LIFE for change in project(header("job"), event)]
    rows = [change for change in submitted if isinstance(change, Upsert)]
    runtime = await read_models(*rows, step(1), step(2, valid_loss=1.25))
    writing, _ = mirror_files(views_of(runtime.store), runtime.blobs, runtime.seal)
    assert isinstance(ENDED, JobEnded)
    sent = await writing.run(ENDED, "acme")
    assert sent is not None
    assert isinstance(sent.body, RegisterFile)
    name = runtime.seal.open(sent.body.terms.name, "name")
    assert name.startswith("ftjob-1.events.out.tfevents.")
    content = sent.body.content
    data = await runtime.blobs.get(content.blob, sha256=content.sha256)
    assert (data.count(b"train/loss"), data.count(b"valid/loss")) == (2, 1)
    again = await writing.run(ENDED, "acme")
    assert again is not None
    assert isinstance(again.body, RegisterFile)
    assert again.body.content == content, "it depends on the job alone"


def test_the_end_of_a_job_leads_to_a_row_for_each_tool_that_gets_a_file() -> None:
    assert isinstance(ENDED, JobEnded)
    ended = replace(ENDED, integrations=("mlflow", "tensorboard", "wandb"))
    todos = [change for change in project(header("job"), ended) if isinstance(change, Todo)]
    assert [todo.kind for todo in todos] == ["results", "tensorboard", "wandb"]
    file_id = result_file_id("acme", ended.job_id, "wandb")
    registered = FileRegistered(
        file_id=file_id,
        terms=FileTerms(purpose="fine-tune-results", name=Sealed("k", b"", b"")),
        content=FileContent(bytes=1, sha256="ab", blob="b"),
        job_id=ended.job_id,
    )
    changes = project(header("dataset"), registered)
    assert Done("wandb", f"acme/{ended.job_id}") in changes
    assert {"wandb_file": file_id} in [
        change.values for change in changes if isinstance(change, Upsert)
    ]


async def test_the_result_file_says_whose_step_it_is_where_several_take_turns() -> None:
    file = await run(runtime := await read_models(step(0, variant=0), step(1, variant=1)))
    assert file is not None
    data = await runtime.blobs.get(file.content.blob, sha256=file.content.sha256)
    lines = list(csv.DictReader(data.decode().splitlines()))
    assert [line["variant"] for line in lines] == ["0", "1"]


def job(seal: Sealer) -> JobRow:
    """A job that asks for a run of W&B."""
    settings = seal.seal("acme", '{"project":"lamps","name":"try 1"}', "integration")
    integration = Integration(kind="wandb", settings=settings)
    return JobRow(
        tenant="acme",
        id="ftjob-1",
        sequence=1,
        command_id="c",
        created_at=1_764_000_000_000,
        spec=replace(SUBMITTED.spec, integrations=(integration,)),
        lane="free",
        wanted="run",
        phase="done",
        outcome="succeeded",
    )


def test_the_file_of_tensorboard_is_named_after_the_job_and_its_time() -> None:
    seal = Sealer(MemoryKeyStore())
    content = event_file(job(seal), [STEP], seal)
    assert content.name == "ftjob-1.events.out.tfevents.1764000000.tunery"
    assert content.data.count(b"train/loss") == 1


def test_a_run_of_wandb_has_the_settings_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    seal, packed = Sealer(MemoryKeyStore()), list[object]()

    def pack(document: object, steps: list[object], settings: object) -> bytes:
        packed.extend((len(steps), settings))
        return b"zip"

    monkeypatch.setattr("services.gateway.jobs.results.packed_run", pack)
    monkeypatch.setattr("tunery.mirrors.wandb_runs.PACKAGE", "json")
    content = offline_run(job(seal), [STEP], seal)
    assert content == ("wandb-ftjob-1.zip", b"zip")
    assert packed == [1, {"project": "lamps", "name": "try 1"}]


def test_files_of_a_tenant_name_its_model_as_the_tenant_knows_it() -> None:
    seal = Sealer(MemoryKeyStore())
    name = "ft:tiny:acme:faq:12345678"
    row = replace(job(seal), model_id=logged_name(seal, "acme", name))
    content = event_file(row, [STEP], seal)
    assert name.encode() in content.data
    assert b":~" not in content.data


def test_without_the_package_of_wandb_there_is_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    seal = Sealer(MemoryKeyStore())
    monkeypatch.setattr("tunery.mirrors.wandb_runs.PACKAGE", "no_such_package")
    assert offline_run(job(seal), [STEP], seal) is None
