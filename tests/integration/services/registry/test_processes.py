"""Registry, ingest, billing and notifier as processes, over real Kafka, PostgreSQL and S3."""

import asyncio
import hashlib
import json
import struct
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from standardwebhooks.webhooks import Webhook

from schemas import errors
from schemas.account import (
    Announce,
    CreateEndpoint,
    CreateTenant,
    DeliveryDue,
    DeliveryEnded,
    DeliveryReport,
    Limits,
    PlanTerms,
    WebhookEvent,
)
from schemas.dataset import (
    DatasetKept,
    DatasetReady,
    DatasetReleased,
    DeleteFile,
    FileContent,
    FileDeleted,
    FileValidated,
    PinDataset,
    PinTerms,
    Prepared,
    PrepareSpec,
    RegisterFile,
    UnpinDataset,
    Validation,
)
from schemas.endpoints import Confirmation, ConfirmEndpoint, EndpointConfirmed, EndpointTerms
from schemas.envelope import Message, Rejected
from schemas.model import (
    AddBase,
    Base,
    BasePinned,
    DeleteVersion,
    Lineage,
    PinBase,
    Promote,
    RegisterVersion,
    StageMoved,
    VersionPublished,
    VersionTerms,
)
from schemas.storage import FileTerms
from schemas.streams import GLOBAL, PARTITIONS
from schemas.topics import MODEL, STREAMS
from schemas.training import BlobFile
from tests.peers import peer_of
from tests.unit.services.ingest.base import make_base, rows
from tests.unit.services.notifier.mail_server import MailServer, mail_server
from tests.unit.services.notifier.receiver import receiving
from tunery.local import ports
from tunery.local.stack import ServiceSpec, Stack
from tunery.platform.connections import open_runtime
from tunery.platform.ports import Runtime
from tunery.platform.seal.webhooks import confirmation_code, webhook_secret
from tunery.platform.settings import RuntimeSettings
from tunery.provenance.folders import compare_folder
from tunery.provenance.keys import PUBLIC, read_trust
from tunery.provenance.statements import PROVENANCE_FILES, SIGNATURE
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.journal.reader import START, JournalReader

PATIENCE_S = 180
NAMES = ("billing", "notifier", "ingest", "registry")
SUCCEEDED = "fine_tuning.job.succeeded"


class Client:
    """Sends commands and reads events of one tenant, in place of the gateway and the scheduler."""

    def __init__(self, stack: Stack, runtime: Runtime, tenant: str) -> None:
        self.stack, self.runtime, self.tenant = stack, runtime, tenant

    async def send(self, stream: str, body: Message) -> None:
        sender = peer_of(self.stack, self.runtime.log, STREAMS[stream], body)
        await sender.send(stream, self.tenant, self.tenant, body)

    async def until(
        self, stream: str, kind: type[Any], wanted: Callable[[Any], bool] = lambda event: True
    ) -> Any:
        """The first such event of this type that the stream has for this tenant."""
        partition = partition_of(self.tenant.encode())
        reader = JournalReader(self.runtime.log, STREAMS[stream], {partition: START})
        await reader.open()
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    for batch in (await reader.read(200)).values():
                        for entry in batch.accepted:
                            for event in entry.events:
                                ours = entry.header.key == self.tenant
                                if ours and isinstance(event, kind) and wanted(event):
                                    return event
        finally:
            await reader.close()


@pytest.fixture(scope="module")
def mail_port() -> int:
    return ports.find_free(set())


@pytest_asyncio.fixture
async def client(servers: Stack, tmp_path: Path, mail_port: int) -> AsyncIterator[Client]:
    allowed = {
        "TUNERY_NOTIFIER_ALLOW_PRIVATE": "1",
        "TUNERY_NOTIFIER_SMTP_URL": f"smtp://127.0.0.1:{mail_port}",
        "TUNERY_NOTIFIER_SMTP_DOMAINS": "acme.example",
    }
    missing = [name for name in NAMES if name not in servers.services]
    await servers.add(*(ServiceSpec(name, env=allowed) for name in missing))
    settings = RuntimeSettings(
        kafka_bootstrap=servers.kafka_bootstrap,
        **servers.settings.kafka_login(),
        command_keys=servers.env["TUNERY_COMMAND_KEYS"],
        postgres_dsn=servers.postgres_dsn,
        s3_endpoint=servers.s3_endpoint,
        s3_access_key=servers.s3_access_key,
        s3_secret_key=servers.s3_secret_key,
        s3_bucket=servers.s3_bucket,
        data_dir=tmp_path,
        keystore_dir=Path(servers.env["TUNERY_KEYSTORE_DIR"]),
    )
    async with open_runtime("tests", settings) as runtime:
        yield Client(servers, runtime, f"tenant{uuid4().hex[:12]}")


@pytest_asyncio.fixture
async def base(client: Client, tmp_path: Path) -> Base:
    """A base model that every partition of `model` knows."""
    folder = make_base(tmp_path / "base")
    base_model = Base(
        base_id=f"tiny-{uuid4().hex[:8]}",
        sha256=hashlib.sha256(str(folder).encode()).hexdigest(),
        path=str(folder),
        parameters=1,
        context_length=512,
        family="llama",
        licence="apache-2.0",
        hidden_size=64,
    )
    add = AddBase(base=base_model)
    sender = peer_of(client.stack, client.runtime.log, MODEL, add)
    sends = (
        sender.send(MODEL, GLOBAL, GLOBAL, add, partition=number) for number in range(PARTITIONS)
    )
    await asyncio.gather(*sends)
    await client.send(
        "model", PinBase(job_id="j", base_id=base_model.base_id, base_sha256=base_model.sha256)
    )
    assert (await client.until("model", BasePinned)).base == base_model
    return base_model


async def pin_file(
    client: Client, base: Base, blob: str, data: bytes
) -> tuple[Validation, Prepared]:
    """Register a file, wait for its validation, pin it for a job; wait until it is prepared."""
    await client.runtime.blobs.put(blob, data)
    register = RegisterFile(
        file_id="file-1",
        terms=FileTerms(
            purpose="fine-tune", name=client.runtime.seal.seal(client.tenant, "rows.jsonl", "name")
        ),
        content=FileContent(bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), blob=blob),
    )
    await client.send("dataset", register)
    validation: Validation = (await client.until("dataset", FileValidated)).validation
    assert base.base_id in {counted.base_id for counted in validation.tokens}
    spec = PrepareSpec(
        base_id=base.base_id,
        base_sha256=base.sha256,
        max_length=128,
        length_policy="reject",
        validation_fraction_ppm=100_000,
        seed=1,
    )
    pin = PinDataset(
        job_id="ftjob-1", terms=PinTerms(training_file="file-1", validation_file=None, spec=spec)
    )
    await client.send("dataset", pin)
    return validation, (await client.until("dataset", DatasetReady)).prepared


async def test_a_file_is_validated_prepared_and_erased(client: Client, base: Base) -> None:
    blob, blobs = f"t/{client.tenant}/files/rows", client.runtime.blobs
    validation, prepared = await pin_file(client, base, blob, rows(40))
    assert validation.accepted
    assert validation.rows == 40
    assert prepared.train_rows + prepared.validation_rows == 40
    await blobs.get(prepared.train_blob, sha256=prepared.train_sha256)
    await client.send("dataset", UnpinDataset(job_id="ftjob-1"))
    await client.send("dataset", DeleteFile(file_id="file-1"))
    erased = tuple((await client.until("dataset", FileDeleted)).erase)
    gone = (blob, prepared.train_blob, validation.report_blob)
    assert all(key.startswith(erased) for key in gone), "they are in folders that are erased"
    async with asyncio.timeout(PATIENCE_S):
        while any([await blobs.exists(key) for key in gone]):  # noqa: ASYNC110  # another process
            await asyncio.sleep(0.1)


async def register_version(client: Client, base: Base) -> RegisterVersion:
    """Register a model version of the job, with an adapter that can be published."""
    header = json.dumps(
        {"up.lora_A.weight": {"dtype": "F32", "shape": [4, 8], "data_offsets": [0, 128]}}
    ).encode()
    config = {"base_model_name_or_path": base.base_id, "r": 4}
    contents = {
        "adapter_config.json": (json.dumps(config, indent=2, sort_keys=True) + "\n").encode(),
        "adapter_model.safetensors": struct.pack("<Q", len(header)) + header + bytes(128),
    }
    files = []
    for name, data in contents.items():
        key = f"t/{client.tenant}/adapters/1/{name}"
        stored = await client.runtime.blobs.put(key, data)
        files.append(BlobFile(name=name, blob=key, sha256=stored.sha256, bytes=len(data)))
    lineage = Lineage(
        job_id="ftjob-1",
        base_id=base.base_id,
        base_sha256=base.sha256,
        dataset_version="v",
        training_sha256="a" * 64,
        config_sha256="b" * 64,
        steps=1,
        verdict="inconclusive",
        scores_sha256="c" * 64,
    )
    model_id = f"ft:{base.base_id}:{client.tenant}::1"
    version = RegisterVersion(
        adapter=tuple(files),
        terms=VersionTerms(model_id=model_id, series="series", lineage=lineage),
    )
    await client.send("model", version)
    return version


async def test_a_version_is_published_signed_and_promoted(
    client: Client, base: Base, servers: Stack, tmp_path: Path
) -> None:
    version = await register_version(client, base)
    published = await client.until("model", VersionPublished)
    names = {file.name for file in version.adapter}
    assert {file.name for file in published.files} == {*names, "lineage.json", *PROVENANCE_FILES}
    folder = tmp_path / "downloaded"
    folder.mkdir()
    for file in published.files:
        await client.runtime.blobs.get_file(file.blob, folder / file.name, sha256=file.sha256)
    trust = read_trust([Path(servers.env["TUNERY_DATA_DIR"]) / "signing" / PUBLIC])
    compared = compare_folder(folder, trust, datetime.now(UTC))
    assert [file for file in compared if file.difference is not None] == []
    assert {file.name for file in compared} == {file.name for file in published.files} - {SIGNATURE}
    await client.send(
        "model", Promote(model_id=version.terms.model_id, stage="staging", expected=None)
    )
    assert (await client.until("model", StageMoved)).stage == "staging"


async def test_a_training_file_can_be_deleted_only_after_its_model(
    client: Client, base: Base
) -> None:
    await pin_file(client, base, f"t/{client.tenant}/files/rows", rows(40))
    version = await register_version(client, base)
    kept = await client.until("dataset", DatasetKept)
    assert (kept.model_id, kept.training_file) == (version.terms.model_id, "file-1")
    await client.until("model", VersionPublished)
    await client.send("dataset", UnpinDataset(job_id="ftjob-1"))
    await client.send("dataset", DeleteFile(file_id="file-1"))
    refused = await client.until("dataset", Rejected)
    assert (refused.code, refused.reason.code) == (errors.FILE_IN_USE, "file_used_by_models")
    assert refused.reason.params["model"] == version.terms.model_id
    await client.send("model", DeleteVersion(model_id=version.terms.model_id, erase=True))
    await client.until("dataset", DatasetReleased)
    await client.send("dataset", DeleteFile(file_id="file-1"))
    assert (await client.until("dataset", FileDeleted)).file_id == "file-1"


async def confirm_address(client: Client, server: MailServer) -> None:
    """An endpoint `we_mail` of ops@acme.example, confirmed with the code that is mailed there."""
    seal, tenant = client.runtime.seal, client.tenant
    code = confirmation_code(seal, tenant, "we_mail", "ops@acme.example")
    digest = hashlib.sha256(code.encode()).hexdigest()
    terms = EndpointTerms(
        endpoint_id="we_mail",
        name=seal.seal(tenant, "name", "name"),
        url=seal.seal(tenant, "mailto:ops@acme.example", "url"),
        event_types=(SUCCEEDED,),
        confirmation=Confirmation(code_sha256=digest, delivery_id=f"whd_{tenant}"),
    )
    await client.send("account", CreateEndpoint(terms=terms))
    await client.until("account", DeliveryEnded)
    assert f"tunery webhook confirm we_mail {code}" in server.received[0].get_content()
    confirm = ConfirmEndpoint(endpoint_id="we_mail", code_sha256=digest)
    await client.send("account", confirm)
    await client.until("account", EndpointConfirmed)


async def delivery_report(client: Client, endpoint_id: str, event_id: str) -> DeliveryReport:
    """How the delivery of an event to an endpoint has ended."""

    def is_wanted(due: DeliveryDue) -> bool:
        return (due.endpoint_id, due.event.event_id) == (endpoint_id, event_id)

    due: DeliveryDue = await client.until("account", DeliveryDue, is_wanted)

    def is_its_end(ended: DeliveryEnded) -> bool:
        return ended.report.delivery_id == due.delivery_id

    ended: DeliveryEnded = await client.until("account", DeliveryEnded, is_its_end)
    return ended.report


@pytest.mark.parametrize("kill", [False, True])
async def test_a_signed_webhook_and_e_mail_arrive_even_when_the_notifier_is_killed(
    client: Client, servers: Stack, mail_port: int, kill: bool
) -> None:
    seal = client.runtime.seal.seal
    limits = Limits(soft_gpu_ms=1, hard_gpu_ms=1, concurrency=1)
    name = seal(client.tenant, "name", "name")
    await client.send(
        "account",
        CreateTenant(
            name=name, terms=PlanTerms(lane="free", limits=limits, price_version="2026-11")
        ),
    )
    async with receiving(200) as receiver, mail_server(port=mail_port) as mail:
        await confirm_address(client, mail)
        endpoint = CreateEndpoint(
            terms=EndpointTerms(
                endpoint_id="we_1",
                name=name,
                url=seal(client.tenant, receiver.url, "url"),
                event_types=(SUCCEEDED,),
            )
        )
        await client.send("account", endpoint)
        if kill:
            servers.kill("notifier")
        announce = Announce(
            event=WebhookEvent(
                event_id=f"evt_{client.tenant}",
                event_type=SUCCEEDED,
                object_id="ftjob-1",
                created_at=1_795_000_000_000,
            )
        )
        await client.send("account", announce)
        for endpoint_id, status in (("we_1", 200), ("we_mail", 250)):
            report = await delivery_report(client, endpoint_id, announce.event.event_id)
            assert (report.outcome, report.status) == ("delivered", status)
        assert mail.received[-1]["Subject"].endswith(": job ftjob-1 has succeeded")
        secret = webhook_secret(client.runtime.seal, client.tenant, "we_1", 1)
        request = receiver.requests[0]
        assert Webhook(secret).verify(request.body, request.headers)["type"] == SUCCEEDED
