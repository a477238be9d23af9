import logging
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.tunery.runtime.step_clock import StepClock
from tests.unit.tunery.runtime.test_backoff import Flaky
from tunery.platform.bus.sender_keys import keys_of
from tunery.platform.connections import (
    LOG_EVERY,
    PATIENCE_MS,
    UNCHECKED,
    encrypted,
    kafka_settings,
    key_store_of,
    patient_kafka_settings,
    sender_keys,
    wait_for_server,
)
from tunery.platform.memory_servers import settings
from tunery.platform.seal.abstract import KeyAbsent, KeyStoreBroken
from tunery.platform.seal.roots import create_root
from tunery.platform.settings import RuntimeSettings, SettingsError
from tunery.runtime.blobs.abstract import BlobsUnavailable
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.bus.signing import UNSIGNED, operator_keys, write_keys


async def test_waiting_for_a_server_names_it_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = StepClock()
    tries = await wait_for_server("PostgreSQL", Flaky(2 * LOG_EVERY), clock)
    assert tries == 2 * LOG_EVERY + 1
    assert max(clock.slept_ms) == 2_000
    events = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [record.getMessage() for record in events] == ["server.awaited"] * 2
    assert {record.__dict__["fields"]["server"] for record in events} == {"PostgreSQL"}


async def test_an_error_that_waiting_does_not_cure_is_raised() -> None:
    async def refuse() -> None:
        raise ValueError("the schema's name is not allowed")

    with pytest.raises(ValueError, match="not allowed"):
        await wait_for_server("PostgreSQL", refuse, StepClock())


def test_a_command_that_a_person_waits_for_gives_a_slow_broker_time() -> None:
    """On a loaded machine a fresh broker answered an import's first writer after three seconds."""
    service, person = kafka_settings(settings()), patient_kafka_settings(settings())
    assert service.send_ms_max < 2_000  # an HTTP request is answered 503 within two seconds
    limits = (person.send_ms_max, person.append_ms_max, person.request_ms_max)
    assert limits == (PATIENCE_MS,) * 3
    assert replace(person, send_ms_max=1_500, append_ms_max=3_000, request_ms_max=5_000) == service


def with_keys(text: str | None) -> RuntimeSettings:
    return settings().model_copy(update={"command_keys": text})


def test_a_process_is_the_sender_that_its_keys_name() -> None:
    node = keys_of(b"s" * 32, "node.a")
    assert sender_keys(with_keys(write_keys(node)), "trainer") == node
    every = sender_keys(with_keys(write_keys(operator_keys(b"s" * 32))), "billing")
    assert every.sender == "billing"


@pytest.mark.parametrize("text", [None, "", "{}", "yes"])
def test_security_c2_a_process_without_keys_does_not_start(text: str | None) -> None:
    with pytest.raises(SettingsError, match=r"TUNERY_COMMAND_KEYS .*`tunery kafka keys billing`"):
        sender_keys(with_keys(text), "billing")


def test_that_commands_are_not_checked_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert sender_keys(with_keys(UNCHECKED), "billing") is UNSIGNED
    ours = [record for record in caplog.records if record.name.startswith("tunery")]
    assert [record.getMessage() for record in ours] == ["commands.unchecked"]


def with_folder(folder: Path, **changes: object) -> RuntimeSettings:
    return settings().model_copy(update={"keystore_dir": folder / "keystore", **changes})


def test_keys_are_wrapped_with_root_keys_and_else_there_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key_store_of(with_folder(tmp_path), "gateway").get("early")
    assert [record.getMessage() for record in caplog.records] == ["keys.unwrapped"]
    create_root(tmp_path / "roots")
    key_store_of(with_folder(tmp_path), "gateway").get("acme")
    assert len(caplog.records) == 1
    assert b"wrapped" in (tmp_path / "keystore" / "acme.key").read_bytes()
    elsewhere = with_folder(tmp_path, roots_dir=tmp_path / "missing")
    with pytest.raises(KeyStoreBroken, match="TUNERY_ROOTS_DIR"):
        key_store_of(elsewhere, "gateway").get("late")


async def test_blobs_are_encrypted_unless_the_operator_says_otherwise(tmp_path: Path) -> None:
    storage, chosen = MemoryBlobs(), with_folder(tmp_path)
    blobs = encrypted(storage, key_store_of(chosen, "gateway"), chosen)
    await blobs.put("t/acme/files/a", b"row")
    off = with_folder(tmp_path, blob_encryption="off")
    await encrypted(storage, key_store_of(off, "ingest"), off).put("t/acme/files/b", b"")
    assert sorted(storage.bodies) == ["t/acme/files/a.sealed", "t/acme/files/b"]
    ingest = encrypted(storage, key_store_of(chosen, "ingest"), chosen)
    assert await ingest.get("t/acme/files/a") == b"row"


@pytest.mark.security
async def test_security_m3_one_service_makes_keys_and_a_node_has_none(tmp_path: Path) -> None:
    chosen = with_folder(tmp_path)
    with pytest.raises(KeyAbsent, match="tenant acme has no key"):
        key_store_of(chosen, "registry").get("acme")
    registry = encrypted(MemoryBlobs(), key_store_of(chosen, "registry"), chosen)
    with pytest.raises(BlobsUnavailable, match="no key now"):
        await registry.put("t/acme/models/m", b"weights")
    gateway_key = key_store_of(chosen, "gateway").get("acme")
    assert key_store_of(chosen, "registry").get("acme") == gateway_key
    assert key_store_of(chosen, "registry").find("acme") == gateway_key
    with pytest.raises(RuntimeError, match="trainer has no keys"):
        key_store_of(chosen, "trainer").get("acme")
