"""`tunery audit`: entries as a table and as JSON, exports that are verified without a server."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.unit.tunery.cli.scripted_api import ScriptedApi, page
from tests.unit.tunery.platform.tools.test_audit_chain import records
from tunery.cli.main import main

ENTRY: dict[str, Any] = {
    "id": "audit_log-1",
    "created_at": 1_795_000_000,
    "kind": "content",
    "tenant": "acme",
    "actor_tenant": "acme",
    "key_id": "key_1",
    "address": "10.0.0.1",
    "method": "GET",
    "route": "/v1/files/{file_id}/content",
    "object_ids": ["file-1"],
    "status": 200,
    "code": None,
    "request_id": "req_1",
    "times": 3,
}
REFUSED = {**ENTRY, "id": "audit_log-2", "kind": "refusal", "status": 403, "code": "forbidden"}


def test_security_m7_entries_are_listed_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ScriptedApi(monkeypatch, {"GET /audit": page(REFUSED, ENTRY)})
    words = ("audit", "list", "--tenant", "acme", "--object", "file-1", "--kind", "content")
    done = api.run(*words, "-n", "7")
    assert done.exit_code == 0, done.output
    _, read, refused = done.output.splitlines()
    assert "GET /v1/files/{file_id}/content" in read
    assert "403 forbidden" in refused
    (request,) = api.requests
    query = {"tenant": "acme", "object_id": "file-1", "kind": "content", "limit": "7"}
    assert dict(request.url.params) == query


def test_security_m7_json_has_one_entry_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ScriptedApi(monkeypatch, {"GET /audit": page(REFUSED, ENTRY)})
    lines = api.run("audit", "list", "--json").output.splitlines()
    assert [json.loads(line) for line in lines] == [ENTRY, REFUSED]


def test_security_m7_a_follower_asks_for_what_came_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses = iter((None, None, KeyboardInterrupt()))

    def pause(_: float) -> None:
        if (end := next(pauses)) is not None:
            raise end

    monkeypatch.setattr("tunery.cli.audit.time.sleep", pause)
    api = ScriptedApi(monkeypatch, {"GET /audit": [page(ENTRY), page(REFUSED), page()]})
    done = api.run("audit", "list", "--follow", "--json")
    assert [json.loads(line) for line in done.output.splitlines()] == [ENTRY, REFUSED]
    asked = [request.url.params.get("after") for request in api.requests]
    assert asked == [None, "audit_log-1", "audit_log-2"]
    assert [request.url.params.get("order") for request in api.requests] == [None, "asc", "asc"]


def verify(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["audit", "verify", *words])
    return done.exit_code, done.output


def exported(path: Path, lines: list[bytes]) -> str:
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return str(path)


def test_security_m7_an_export_is_verified_without_a_server(tmp_path: Path) -> None:
    file = exported(tmp_path / "a", records())
    code, said = verify(file)
    assert code == 0, said
    assert "5 entries in 5 records of 2 gateway processes" in said
    code, said = verify(file, "--json")
    assert json.loads(said)["entries"] == 5


def test_security_m7_a_changed_export_is_refused(tmp_path: Path) -> None:
    changed = [records()[0].replace(b"key_1", b"key_2"), *records()[1:]]
    code, said = verify(exported(tmp_path / "a", changed))
    assert code == 1
    assert "the record before it was changed or removed" in said


@pytest.mark.parametrize("kept", [4, 3, 0])
def test_security_m7_a_shortened_log_differs_from_an_earlier_export(
    kept: int, tmp_path: Path
) -> None:
    earlier = exported(tmp_path / "earlier", records())
    shortened = exported(tmp_path / "now", records()[:kept])
    assert verify(shortened)[0] == 0  # a chain cannot show that
    code, said = verify(shortened, "--against", earlier)
    assert code == 1
    assert "end before those of" in said
    assert verify(earlier, "--against", shortened)[0] == 0


def test_security_m7_a_log_made_anew_differs_from_an_earlier_export(tmp_path: Path) -> None:
    earlier = exported(tmp_path / "earlier", records()[:1])
    other = [records()[0].replace(b"key_1", b"key_2")]
    code, said = verify(exported(tmp_path / "now", other), "--against", earlier)
    assert code == 1
    assert "record 0 is not the one of" in said
