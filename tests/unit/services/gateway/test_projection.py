"""Given events of `pool`, `dataset`, `account`, `model`, then rows."""

from collections.abc import Iterable

from msgspec.structs import replace

from schemas.dataset import FileDeleted, FileRegistered, FileUnreadable
from schemas.model import BaseAdded, StageMoved, VersionDeleted
from schemas.pool import (
    LeaseRef,
    NodeDescription,
    NodeLost,
    NodeRegistered,
    NodeSeen,
    NodesObserved,
    Token,
    UsageCredited,
    UsageSliced,
)
from schemas.sealed import Sealed
from services.gateway.files.responses import file_object, validation_object
from services.gateway.projection import project
from tests.unit.services.gateway.control_plane import BASE
from tests.unit.services.gateway.view_rows import folded, header, only
from tunery.runtime.verbs import Change

LEASE = LeaseRef(
    token=Token(pool="default", lease=7),
    tenant="acme",
    job_id="ftjob-1",
    attempt=1,
    role="train",
    lane="premium",
    price_version="2026-11",
)
SLICE = UsageSliced(lease=LEASE, hour_utc=13, used_gpu_ms=8_400_000, billable_gpu_ms=8_000_000)
CREDIT = UsageCredited(lease=LEASE, hour_utc=13, lost_gpu_ms=560_000, cause="lost")
NODE = NodeDescription(node_id="a", incarnation="i", slots=1, device="cpu", memory_bytes=1)
FILE = FileRegistered(
    file_id="file-1",
    purpose="fine-tune",
    name=Sealed(key_id="k", nonce=b"n", ciphertext=b"c"),
    bytes=10,
    sha256="ab" * 32,
    blob="t/acme/files/file-1",
)


def test_usage_and_credit_are_lines_of_their_own() -> None:
    lines = folded("pool", SLICE, CREDIT, key="default")["usage"].values()
    assert sorted((line["kind"], line["billable_gpu_ms"]) for line in lines) == [
        ("credit", -560_000),
        ("usage", 8_000_000),
    ]
    assert {line["tenant"] for line in lines} == {"acme"}


def test_a_lost_node_is_not_alive_until_it_registers_again() -> None:
    registered = NodeRegistered(node=NODE)
    lost = NodeLost(node_id="a", incarnation="i", last_seen=1)
    assert only(folded("pool", registered, lost), "nodes")["state"] == "lost"
    assert only(folded("pool", registered, lost, registered), "nodes")["state"] == "alive"


def test_a_lost_node_that_is_heard_again_is_alive() -> None:
    registered = NodeRegistered(node=replace(NODE, device="cuda"))
    lost = NodeLost(node_id="a", incarnation="i", last_seen=1)
    seen = NodeSeen(node_id="a", incarnation="i", last_seen=2, silent=False)
    heard = NodesObserved(seen=(seen,))
    assert only(folded("pool", registered, lost, heard), "nodes")["state"] == "alive"
    silent = NodesObserved(seen=(replace(seen, silent=True),))
    assert only(folded("pool", registered, lost, silent), "nodes")["state"] == "lost"


def test_a_file_that_cannot_be_read_says_why() -> None:
    row = only(folded("dataset", FILE, FileUnreadable(file_id="file-1", failure="gone")), "files")
    shown = file_object(row, lambda sealed: "rows.jsonl")
    assert shown["status"] == "error"
    assert shown["status_details"] == "The file could not be checked: gone"
    assert validation_object(row, None)["accepted"] is False


def test_a_deleted_file_is_gone() -> None:
    gone = FileDeleted(file_id="file-1", blob="b", report_blob=None)
    assert folded("dataset", FILE, gone)["files"] == {}


def test_names_are_sealed_in_the_read_model() -> None:
    row = only(folded("dataset", FILE), "files")
    assert row["name"] == {"key_id": "k", "nonce": "bg==", "ciphertext": "Yw=="}


def test_a_base_told_by_every_partition_is_one_row() -> None:
    """The same row in whatever order the partitions are read."""

    def read(partitions: Iterable[int]) -> list[Change]:
        return [
            change
            for partition in partitions
            for change in project(
                replace(header("model", at=1_000 + partition, key="*"), partition=partition),
                BaseAdded(base=BASE),
            )
        ]

    assert read(range(8)) == read(reversed(range(8)))
    tables = folded("model", BaseAdded(base=BASE), key="*")
    assert only(tables, "bases")["base"]["sha256"] == BASE.sha256


def test_who_is_replaced_goes_back_to_dev() -> None:
    first = StageMoved(model_id="m1", series="s", stage="production", replaced=None, by="promotion")
    second = StageMoved(
        model_id="m2", series="s", stage="production", replaced="m1", by="promotion"
    )
    models = folded("model", first, second)["models"]
    assert {row["id"]: row["stage"] for row in models.values()} == {
        "m1": "dev",
        "m2": "production",
    }
    assert list(folded("model", first, VersionDeleted(model_id="m1"))["models"]) == []
