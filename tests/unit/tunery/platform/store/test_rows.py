import json

import pytest

from tunery.platform.store.rows import delete_sql, encode, name, upsert_sql


@pytest.mark.parametrize("identifier", ["jobs", "_x", "job_id2"])
def test_plain_names_are_quoted(identifier: str) -> None:
    assert name(identifier) == f'"{identifier}"'


@pytest.mark.parametrize("identifier", ["", "Jobs", "a b", 'a"; DROP TABLE x', "1a", "a" * 64])
def test_other_names_are_refused(identifier: str) -> None:
    with pytest.raises(ValueError, match="is not a name for a table or column"):
        name(identifier)


def test_rows_are_json_with_bytes_as_hex() -> None:
    assert json.loads(encode([{"id": "a", "body": b"\x00\xff"}])) == [
        {"id": "a", "body": "\\x00ff"}
    ]


def test_nul_becomes_the_replacement_character_and_an_escaped_backslash_stays() -> None:
    assert json.loads(encode([{"text": "a\0b\\u0000c"}])) == [{"text": "a\ufffdb\\u0000c"}]


def test_an_upsert_updates_rows_that_exist_and_inserts_the_others() -> None:
    query = upsert_sql("jobs", ("id",), ("id", "phase"))
    assert 'UPDATE "jobs" t SET "phase" = i."phase"' in query
    assert 'ON CONFLICT ("id") DO UPDATE SET "phase" = excluded."phase"' in query
    assert "DO NOTHING" in upsert_sql("jobs", ("id",), ("id",))


def test_columns_that_may_be_inserted_alone_take_one_step() -> None:
    query = upsert_sql("jobs", ("id",), ("id", "phase"), insertable=True)
    assert query.startswith('INSERT INTO "jobs" ("id", "phase") SELECT')
    assert query.endswith('ON CONFLICT ("id") DO UPDATE SET "phase" = excluded."phase"')


def test_a_delete_names_every_key_column() -> None:
    query = delete_sql("files", ("tenant", "id"))
    assert 'WHERE t."tenant" = i."tenant" AND t."id" = i."id"' in query
