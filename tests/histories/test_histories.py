"""Journals of every event version, as they were written once, folded by today's code."""

import json
import os
import subprocess
import sys
from base64 import b64decode
from functools import cache
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
import pytest
from immutables import Map

from schemas.envelope import GENESIS, versioned
from schemas.sealed import REDACTED, Sealed
from services.billing.react import react_account
from services.ingest.react import react_dataset
from services.registry.react import react_model
from services.scheduler.react import react_job, react_pool
from tests.histories import record as record_histories
from tests.histories.catalogue import STORIES
from tests.histories.record import main, record
from tests.histories.recorder import TENANT, keys
from tests.histories.replaying import (
    AGGREGATES,
    FOLDER,
    Expected,
    History,
    Pruning,
    difference,
    expected,
    histories,
    outcome,
    sums,
)
from tunery.cli.replay.catalogue import PROJECTIONS
from tunery.platform.seal.sealer import NO_KEY, Sealer
from tunery.runtime.bus.abstract import Record
from tunery.runtime.journal.acceptance import record_hash
from tunery.runtime.journal.codec import canonical
from tunery.runtime.tools.inspection import PartitionScan, unsealed
from tunery.runtime.tools.verify import replay
from tunery.runtime.verbs import React

ROOT: Final = Path(__file__).resolve().parents[2]
REACTIONS: Final[dict[str, React]] = {
    "account": react_account,
    "dataset": react_dataset,
    "job": react_job,
    "model": react_model,
    "pool": react_pool,
}
RECORDED: Final = {history.name: history for history in histories()}


@cache
def today(name: str) -> Expected:
    return outcome(RECORDED[name])


@pytest.mark.parametrize("name", RECORDED)
def test_a_history_folds_to_what_it_did(name: str) -> None:
    folded = today(name)
    assert difference(name, expected(name), folded) == ""
    assert expected(name).fold_version == folded.fold_version, "python -m tests.histories.record"


@pytest.mark.parametrize("name", RECORDED)
def test_a_history_is_a_sound_journal(name: str) -> None:
    history = RECORDED[name]
    walk = PartitionScan(history.aggregate.stream, history.partition)
    walk.take(history.records)
    assert walk.tally.bad is None
    assert walk.tally.accepted + walk.tally.void + walk.tally.claims == len(history.records)


@pytest.mark.parametrize("stream", AGGREGATES)
def test_projections_and_reactions_take_all_histories(stream: str) -> None:
    events = [
        (accepted.header, event)
        for history in RECORDED.values()
        if history.aggregate.stream.name == stream
        for accepted in history.accepted()
        for event in accepted.events
    ]
    for projection in chain(*PROJECTIONS.values()):
        if stream in {source.name for source in projection.streams}:
            changes = [projection.project(header, event) for header, event in events]
            assert any(changes)
    sends = [REACTIONS[stream](header, event) for header, event in events]
    assert any(sends)


def test_every_event_version_of_every_stream_is_in_a_history() -> None:
    absent = {
        stream: sorted(
            {versioned(event.__name__) for event in get_args(aggregate.stream.event)}
            - {
                event
                for history in RECORDED.values()
                if history.aggregate.stream.name == stream
                for event in history.types()
            }
        )
        for stream, aggregate in AGGREGATES.items()
    }
    assert not any(absent.values()), f"tell a story in tests/histories/stories: {absent}"


def test_what_was_recorded_is_never_edited() -> None:
    known = sums()
    journals = {path.name: path for path in FOLDER.glob("*.jsonl")}
    assert known.keys() == journals.keys()
    assert {
        name
        for name, path in journals.items()
        if sha256(path.read_bytes()).hexdigest() != known[name]
    } == set()


def test_every_story_is_recorded() -> None:
    assert STORIES.keys() <= RECORDED.keys(), "python -m tests.histories.record"


@pytest.mark.long
def test_another_hash_seed_gives_the_same_states() -> None:
    """The hash seed of this process differs in each run."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.histories.replaying"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == {name: today(name).state_hash for name in RECORDED}


# --- erased data still folds ----------------------------------------------------------------------


def forgotten(history: History) -> History:
    """The same journal as a tenant without a key would have written it: nothing sealed in it."""
    dropped = msgspec.to_builtins(Sealed(NO_KEY, b"", b""))
    records: list[Record] = []
    hashes: dict[bytes, bytes] = {GENESIS: GENESIS}
    for entry in history.records:
        plain: Any = unsealed(msgspec.json.decode(entry.value), lambda _: dropped)
        if "prev" in plain:
            plain["prev"] = hashes[b64decode(plain["prev"])]
        value = msgspec.json.encode(plain)
        hashes[record_hash(entry.value)] = record_hash(value)
        records.append(entry._replace(value=value))
    return History(history.name, history.aggregate, tuple(records))


def in_clear(state: Any) -> Any:
    """A state with every sealed field left out."""
    return unsealed(msgspec.json.decode(canonical(state)), lambda _: None)


def sealed_in(history: History) -> list[Sealed]:
    fields: list[Sealed] = []
    for entry in history.records:
        unsealed(msgspec.json.decode(entry.value), fields.append)
    return fields


@pytest.mark.parametrize("name", RECORDED)
def test_a_history_whose_sealed_fields_are_gone_folds_to_the_same(name: str) -> None:
    history = RECORDED[name]
    without = forgotten(history)
    assert all(field.key_id == NO_KEY for field in sealed_in(without))
    for before, now in zip(history.states(), without.states(), strict=True):
        assert in_clear(before) == in_clear(now)


def test_sealed_fields_are_read_until_the_key_is_destroyed() -> None:
    fields = [field for history in RECORDED.values() for field in sealed_in(history)]
    sealer = Sealer(keys())
    texts = {sealer.open(field, "name") for field in fields}
    assert {"ACME Inc.", "https://acme.example/new", "row 7 says: 12 High Street"} <= texts
    sealer.destroy(TENANT)
    assert {sealer.open(field, "name") for field in fields} == {REDACTED}
    assert {name: outcome(history).state_hash for name, history in RECORDED.items()} == {
        name: today(name).state_hash for name in RECORDED
    }


def test_no_text_of_a_person_is_in_the_clear() -> None:
    written = b"".join(entry.value for history in RECORDED.values() for entry in history.records)
    for text in (b"night shift", b"ACME Inc", b"acme.example", b"annes-bot", b"High Street"):
        assert text not in written


# --- the recorder itself --------------------------------------------------------------------------


def test_recording_a_story_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    name, story = next(iter(STORIES.items()))
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        record(name, story, folder)
    first, second = ((tmp_path / side / f"{name}.jsonl").read_bytes() for side in "ab")
    assert first == second


def test_a_recorded_export_is_not_changed(tmp_path: Path) -> None:
    story = "model.versions_and_stages"
    text = (FOLDER / f"{story}.jsonl").read_bytes()
    (tmp_path / "model.of_production.jsonl").write_bytes(text)
    assert main(tmp_path) == 0
    assert sums(tmp_path)["model.of_production.jsonl"] == sha256(text).hexdigest()
    assert expected("model.of_production", tmp_path) == expected(story)
    (tmp_path / "job.whole.jsonl").write_bytes(
        text.replace(b'"partitions":{', b'"partitions":{"9":[0,0],')
    )
    with pytest.raises(ValueError, match=r"job\.whole\.jsonl is not the journal of one partition"):
        main(tmp_path)


def test_a_fold_that_changed_is_named_and_a_bumped_version_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "job.a_job_that_succeeds"
    monkeypatch.setattr(record_histories, "STORIES", {name: STORIES[name]})
    assert main(tmp_path) == 0
    path = tmp_path / f"{name}.state.json"
    wanted = expected(name, tmp_path)
    after = (*wanted.after[:5], "0" * 16, *wanted.after[6:])
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(wanted, after=after)))
    capsys.readouterr()
    assert main(tmp_path) == 1
    assert f"{name}: after offset 5 the same fold version" in capsys.readouterr().err
    older = msgspec.structs.replace(wanted, after=after, fold_version=wanted.fold_version - 1)
    path.write_bytes(msgspec.json.encode(older))
    assert main(tmp_path) == 0
    assert expected(name, tmp_path) == wanted


class Inner(msgspec.Struct):
    lane: str
    slots: int = 1


class Outer(msgspec.Struct):
    jobs: Map[str, Inner]
    notes: tuple[Inner, ...] = ()
    files: list[str] = msgspec.field(default_factory=list)


def test_fields_at_their_default_are_left_out_of_states() -> None:
    state = Outer(Map({"a": Inner("free"), "b": Inner("free", 2)}), files=["f"])
    assert Pruning().prune(state) == {
        "jobs": {"a": {"lane": "free"}, "b": {"lane": "free", "slots": 2}},
        "files": ["f"],
    }


def test_a_history_that_was_tampered_with_stops_its_replay() -> None:
    history = RECORDED["account.keys_and_webhooks"]
    forged = history.records[2]._replace(
        value=history.records[2].value.replace(b'"premium"', b'"standard"')
    )
    records = (*history.records[:2], forged, *history.records[3:])
    with pytest.raises(Exception, match="hash chain"):
        replay(history.aggregate, history.partition, records)
