"""An ended job as files of other tools. Their own readers read them in `make test-clients`."""

import pytest
from msgspec.structs import replace

from schemas.integrations import Integration
from services.gateway.jobs.results import event_file, offline_run
from services.gateway.views.tables.jobs import JobRow
from tests.unit.services.gateway.jobs.job_events import SUBMITTED
from tests.unit.services.gateway.jobs.test_results import STEP
from tunery.platform.seal.memory import MemoryKeyStore
from tunery.platform.seal.model_names import logged_name
from tunery.platform.seal.sealer import Sealer


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
