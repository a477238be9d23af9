"""Commands for journals, over journals of the production deciders."""

import gzip
import io
import json
from functools import partial
from pathlib import Path

import msgspec
import pytest
from click.testing import Result

from schemas import topics
from schemas.account import RevokeKey
from schemas.streams import PARTITIONS, SNAPSHOTS_TOPIC
from schemas.topics import ACCOUNT, STREAMS
from tests.histories.recorder import TENANT, keys
from tests.histories.stories.account import ID
from tests.unit.tunery.cli.journal.journals import OWNERS, RECORDED, Front, change, filled, records
from tests.unit.tunery.runtime.journal.memory_fixture import envelope
from tunery.cli import journal
from tunery.cli.journal import scan
from tunery.cli.journal.archiving import archive_all
from tunery.local.paths import DataDir
from tunery.platform.seal.directory import DirectoryKeyStore
from tunery.platform.seal.sealer import Sealer
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.bus.abstract import ArchiveDamaged
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.journal.codec import state_hash
from tunery.runtime.journal.snapshots import Pointer
from tunery.runtime.tools.archive import ArchiveReader
from tunery.runtime.tools.archived_log import Archive, ArchivedLog

HERE = OWNERS.partition
POOL = RECORDED["pool.lost_and_killed"]


@pytest.fixture
def tunery(monkeypatch: pytest.MonkeyPatch) -> Front:
    return Front(monkeypatch, filled(OWNERS.name, POOL.name))


def test_the_streams_are_those_of_the_catalogue() -> None:
    assert tuple(sorted(topics.STREAMS)) == journal.STREAMS
    assert journal.PARTITION.max == PARTITIONS - 1


# --- tail ---------------------------------------------------------------------------------------


def test_tail_shows_accepted_entries(tunery: Front) -> None:
    answer = tunery.lines("tail", "account")
    assert {record["verdict"] for record in answer} == {"accepted"}
    assert [record["content"]["cause"] for record in answer] == list(range(11))
    assert [record["offset"] for record in tunery.lines("tail", "account", "-n", 2)] == [14, 15]


def test_tail_shows_void_records_with_the_reason(tunery: Front) -> None:
    answer = {record["offset"]: record for record in tunery.lines("tail", "account", "--void")}
    assert len(answer) == len(OWNERS.records)
    assert (answer[7]["verdict"], answer[7]["why"]) == (
        "void",
        "written under epoch 0, after owner-2 had claimed the partition at offset 6",
    )
    assert answer[9]["why"] == "it decides command 5, and command 6 is the next"
    output = tunery("tail", "account", "--void").stdout
    assert "owner-2 takes the partition: epoch 6" in output
    assert "KeyCreated.v1" in output


def test_tail_of_a_key_is_that_of_its_partition(tunery: Front) -> None:
    assert {record["key"] for record in tunery.lines("tail", "account", "--key", "acme")} == {
        "acme"
    }
    assert tunery.lines("tail", "account", "--key", "nobody") == []


def test_tail_ends_with_the_record_that_stops_readers(tunery: Front) -> None:
    change(tunery.log, 8, b"EndpointCreated.v1", b"EndpointCreated.v7")
    *_, last = tunery.lines("tail", "account")
    assert (last["offset"], last["verdict"]) == (8, "unreadable")


# --- archive --------------------------------------------------------------------------------------


@pytest.fixture
def archiving(monkeypatch: pytest.MonkeyPatch) -> tuple[Front, MemoryLog, MemoryBlobs]:
    """A partition with two snapshots, the older one behind 12 records."""
    log, blobs = filled(OWNERS.name), MemoryBlobs()
    for slot, offset in enumerate((12, 15)):
        pointer = Pointer(
            stream="account",
            partition=HERE,
            slot=slot,
            offset=offset,
            fold_version=1,
            blob="x",
            sha256="0" * 64,
        )
        log.put(SNAPSHOTS_TOPIC, HERE, b"", msgspec.json.encode(pointer))
    archived = ArchivedLog(log, Archive(lambda: blobs), {ACCOUNT.journal.name: "account"})
    return Front(monkeypatch, archived), log, blobs


def test_archive_moves_old_records_and_journals_read_as_before(
    archiving: tuple[Front, MemoryLog, MemoryBlobs],
) -> None:
    tunery, log, blobs = archiving
    words = ("archive", "account", "--older-than", 7)
    before = tunery.json("verify", "account")
    assert "12 records would be archived" in tunery(*words, "--dry-run").stdout
    assert not blobs.bodies
    shown = tunery(*words).stdout
    assert f"account/{HERE}" in shown
    assert "12 records are archived" in shown
    assert len(blobs.bodies) == 1
    assert log.topics[ACCOUNT.journal.name][HERE].start == 11
    assert tunery.json("verify", "account") == before
    again = tunery.json(*words)
    assert [each["why"] for each in again if each["end"]] == ["its older snapshot is of offset 12"]
    blobs.bodies.clear()
    with pytest.raises(ArchiveDamaged, match="it is missing"):
        raise_from(tunery("verify", "account", code=1))


def raise_from(result: Result) -> None:
    assert result.exception is not None
    raise result.exception


async def test_erasing_a_tenant_reaches_archived_records(
    archiving: tuple[Front, MemoryLog, MemoryBlobs],
) -> None:
    """Texts are sealed with the tenant's key there, too, and open nowhere once it is destroyed."""
    tunery, log, blobs = archiving
    await archive_all(tunery.log, ["account"], 1 << 60, dry_run=False)
    assert log.topics[ACCOUNT.journal.name][HERE].start > 1
    (body,) = blobs.bodies.values()
    assert b"TenantCreated.v1" in gzip.decompress(body)
    assert b"ACME" not in gzip.decompress(body)
    store = keys()

    async def name() -> str:
        show = partial(Sealer(store).open, field="name")
        content = (await scan.inspect(tunery.log, "account", HERE, 1, show)).content
        return str(content["events"][0]["name"])

    assert await name() == "ACME Inc."
    store.destroy(TENANT)
    assert await name() == "[redacted]"


# --- inspect --------------------------------------------------------------------------------------


def test_inspect_shows_one_record_and_keeps_sealed_texts_sealed(tunery: Front) -> None:
    answer = tunery.json("inspect", "account", HERE, 1)
    assert (answer["verdict"], answer["content"]["events"][0]["type"]) == (
        "accepted",
        "TenantCreated.v1",
    )
    assert answer["content"]["events"][0]["name"].startswith("[sealed with acme.")
    assert "accepted" in tunery("inspect", "account", HERE, 1).stdout


def test_inspect_opens_sealed_texts_with_the_keys_of_the_machine(
    tunery: Front, tmp_path: Path
) -> None:
    store = DirectoryKeyStore(DataDir(tmp_path).keystore)
    store.get(TENANT)
    sealer = Sealer(store)
    name = msgspec.json.encode(sealer.seal(TENANT, "ACME Inc.", "name"))
    history = json.loads(records(tunery.log, "account", HERE)[1].value)["events"][0]["name"]
    change(tunery.log, 1, json.dumps(history, separators=(",", ":")).encode(), name)
    words = ("inspect", "account", HERE, 1, "--data-dir", tmp_path)
    assert tunery.json(*words)["content"]["events"][0]["name"].startswith("[sealed with acme.")
    opened = tunery.json(*words, "--unseal")["content"]
    assert opened["events"][0]["name"] == "ACME Inc."
    assert opened["actor"] == "[redacted]"  # sealed with another key, which is gone
    change(tunery.log, 1, name[-12:], b'AAAAAAAAA="}')
    assert "does not open" in tunery.json(*words, "--unseal")["content"]["events"][0]["name"]
    store.destroy(TENANT)
    assert tunery.json(*words, "--unseal")["content"]["events"][0]["name"] == "[redacted]"


def test_inspect_says_why_a_record_cannot_be_decoded_and_what_to_do(tunery: Front) -> None:
    change(tunery.log, 4, b"Rejected.v1", b"Rejected.v9")
    answer = tunery.json("inspect", "account", HERE, 4, code=1)
    assert answer["verdict"] == "unreadable"
    assert "Invalid value 'Rejected.v9'" in answer["why"]
    assert "readers are deployed before writers" in answer["fix"]
    held = records(tunery.log, "account", HERE)
    held[4] = held[4]._replace(value=b"\x00\x01 nothing")
    answer = tunery.json("inspect", "account", HERE, 4, code=1)
    assert (answer["content"], answer["bytes"]) == (None, r"b'\x00\x01 nothing'")
    output = tunery("inspect", "account", HERE, 4, code=1).stdout
    assert "JSON is malformed" in output
    assert "fix" in output


def test_inspect_shows_what_lies_behind_a_bad_record_without_a_verdict(tunery: Front) -> None:
    change(tunery.log, 4, b"Rejected.v1", b"Rejected.v9")
    answer = tunery.json("inspect", "account", HERE, 14, code=1)
    assert answer["verdict"] == "unreached"
    assert answer["why"].startswith("readers stop at offset 4: ")
    assert answer["content"]["events"][0]["type"] == "KeyCreated.v1"


def test_inspect_of_an_unknown_offset_names_the_range(tunery: Front) -> None:
    output = tunery("inspect", "account", HERE, 99, code=1).output
    assert "has no record at offset 99" in output
    assert "it holds [0, 16)" in output


def test_inspect_shows_a_command_and_what_is_wrong_with_it(tunery: Front) -> None:
    topic = STREAMS["account"].commands.name
    body = RevokeKey(key_id="key_1")
    for value in (
        envelope(TENANT, body, ID),
        envelope(TENANT, body, ID).replace(b"RevokeKey.v1", b"RevokeKey.v2"),
        b"\x00",
    ):
        tunery.log.put(topic, HERE, TENANT.encode(), value)
    answer = tunery.json("inspect", "account", HERE, 0, "--commands")
    assert (answer["verdict"], answer["content"]["body"]["key_id"]) == ("readable", "key_1")
    answer = tunery.json("inspect", "account", HERE, 1, "--commands", code=1)
    assert (answer["verdict"], answer["why"]) == (
        "refused",
        "body: Invalid value 'RevokeKey.v2' - at `$.type`",
    )
    assert answer["content"]["body"]["type"] == "RevokeKey.v2"
    assert tunery.json("inspect", "account", HERE, 2, "--commands", code=1)["bytes"] == r"b'\x00'"
    output = tunery("inspect", "account", HERE, 3, "--commands", code=1).output
    assert "it holds [0, 3)" in output


# --- verify ---------------------------------------------------------------------------------------


def test_verify_walks_every_partition_and_names_its_head(tunery: Front) -> None:
    answer = tunery.json("verify", code=1)
    (missing,) = answer["missing"]  # one of its records names a record of `job`, which is empty
    assert (answer["sound"], f"account/{HERE} has a record" in missing) == (False, True)
    assert tunery.json("verify", "account", "pool")["sound"] is True
    assert len(answer["partitions"]) == len(STREAMS) * PARTITIONS
    (mine,) = (
        record
        for record in answer["partitions"]
        if record["stream"] == "account" and record["records"]
    )
    assert (mine["accepted"], mine["void"], mine["claims"], mine["cause"]) == (11, 2, 3, 10)
    assert (mine["incarnation"], mine["base"], len(mine["head"])) == (13, 4, 64)
    assert mine["head"][:16] in tunery("verify", "account").stdout


@pytest.mark.parametrize(
    ("offset", "old", "new", "bad", "why"),
    [
        (1, b'"lane":"standard"', b'"lane":"premium"', 2, "hash chain"),
        (12, b'"at":', b'"a":', 12, "missing required field `at`"),
        (8, b'"epoch":6', b'"epoch":8', 8, "newer than any claim"),
    ],
)
def test_verify_names_the_first_bad_record(
    tunery: Front, offset: int, old: bytes, new: bytes, bad: int, why: str
) -> None:
    change(tunery.log, offset, old, new)
    answer = tunery.json("verify", "account", "pool", code=1)
    (wrong,) = (record["bad"] for record in answer["partitions"] if record["bad"])
    assert (wrong["stream"], wrong["partition"], wrong["offset"]) == ("account", HERE, bad)
    assert why in wrong["why"]
    assert f"account/{HERE} at offset {bad}" in tunery("verify", code=1).stdout


def test_verify_notices_a_lost_beginning(tunery: Front) -> None:
    partition = tunery.log.topics[STREAMS["account"].journal.name][HERE]
    del partition.records[:3]
    partition.start = 3
    (wrong,) = (
        record["bad"]
        for record in tunery.json("verify", "account", code=1)["partitions"]
        if record["bad"]
    )
    assert wrong["why"] == "expected offset 0; records are missing"


# --- export and import ----------------------------------------------------------------------------


def test_an_export_holds_the_very_bytes(tunery: Front, tmp_path: Path) -> None:
    file = tmp_path / "account.jsonl"
    answer = tunery.json("export", "account", file)
    assert (answer["sound"], sum(record["records"] for record in answer["partitions"])) == (
        True,
        16,
    )
    assert list(ArchiveReader(io.BytesIO(file.read_bytes())).records()) == list(OWNERS.records)
    standard = tunery("export", "account", "-")
    assert standard.stdout_bytes == file.read_bytes()
    assert "11" in standard.stderr


def test_an_export_of_a_damaged_journal_is_made_and_said_to_be_damaged(
    tunery: Front, tmp_path: Path
) -> None:
    change(tunery.log, 4, b"Rejected.v1", b"Rejected.v9")
    file = tmp_path / "account.jsonl"
    assert "at offset 4" in tunery("export", "account", file, code=1).stdout
    assert len(list(ArchiveReader(io.BytesIO(file.read_bytes())).records())) == 16


def test_an_import_gives_the_same_journal_and_an_operators_claim(
    tunery: Front, tmp_path: Path
) -> None:
    file = tmp_path / "account.jsonl"
    tunery("export", "account", file)
    tunery.log = filled()
    restored = tunery.json("import", file)
    assert len(restored) == PARTITIONS
    assert restored[HERE] == {
        "stream": "account",
        "partition": HERE,
        "records": 16,
        "next_command": 11,
        "base": 11,
        "incarnation": 16,
    }
    assert restored[HERE - 1] | {"partition": 0} == {
        "stream": "account",
        "partition": 0,
        "records": 0,
        "next_command": 0,
        "base": 0,
        "incarnation": 0,
    }
    held = records(tunery.log, "account", HERE)
    assert [record.value for record in held[:-1]] == [record.value for record in OWNERS.records]
    mine = tunery.json("verify", "account")["partitions"][HERE]
    assert (mine["accepted"], mine["base"], mine["incarnation"]) == (11, 11, 16)


def test_an_import_into_what_is_not_empty_is_refused(tunery: Front, tmp_path: Path) -> None:
    file = tmp_path / "account.jsonl"
    tunery("export", "account", file)
    before = len(records(tunery.log, "account", HERE))
    output = tunery("import", file, code=1).output
    assert f"account/{HERE} holds the records [0, 16)" in output
    assert "--replace" in output
    assert len(records(tunery.log, "account", HERE)) == before


def test_an_import_replaces_damaged_files_on_request(tunery: Front, tmp_path: Path) -> None:
    file = tmp_path / "account.jsonl"
    tunery("export", "account", file)
    change(tunery.log, 4, b"Rejected.v1", b"Rejected.v9")
    tunery("verify", "account", code=1)
    tunery("import", file, "--replace")
    assert tunery.json("verify", "account")["sound"] is True


def test_one_partition_cannot_replace_all(tunery: Front, tmp_path: Path) -> None:
    file = tmp_path / "account.jsonl"
    tunery("export", "account", file, "-p", HERE)
    assert "the file holds 1 of 8 partitions" in tunery("import", file, "--replace", code=1).output
    assert len(records(tunery.log, "account", HERE)) == 16


def cut_off(text: bytes) -> bytes:
    return b"".join(text.splitlines(keepends=True)[:-1])


@pytest.mark.parametrize(
    ("spoil", "output"),
    [
        (cut_off, "it was cut off"),
        (gzip.compress, "line 1: "),
        (lambda text: text.replace(b'"stream":"account"', b'"stream":"dance"'), "'dance' is no"),
        (lambda text: text.replace(b'"lane":"standard"', b'"lane":"premium"'), "hash chain"),
        (lambda text: text.replace(b"Rejected.v1", b"Rejected.v9"), "Invalid value 'Rejected.v9'"),
    ],
    ids=["cut off", "compressed", "another stream", "tampered with", "of a later version"],
)
def test_nothing_is_written_of_a_file_that_is_not_sound(
    tunery: Front, tmp_path: Path, spoil: "object", output: str
) -> None:
    assert callable(spoil)
    file = tmp_path / "account.jsonl"
    tunery("export", "account", file)
    file.write_bytes(spoil(file.read_bytes()))
    tunery.log = filled()
    assert output in tunery("import", file, code=1).output
    assert records(tunery.log, "account", HERE) == []


def test_states_are_the_same_after_a_move(tunery: Front, tmp_path: Path) -> None:
    file = tmp_path / "pool.jsonl"
    tunery("export", "pool", file)
    tunery.log = MemoryLog()
    tunery("import", file)
    moved = type(POOL)(
        POOL.name, POOL.aggregate, tuple(records(tunery.log, "pool", POOL.partition))
    )
    *_, before = POOL.states()
    *_, after = moved.states()
    assert state_hash(after) == state_hash(before)
