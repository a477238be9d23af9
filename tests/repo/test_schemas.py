"""Messages on the log can be read for ever: fields are only added."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from msgspec import Struct, defstruct

from schemas.envelope import Message
from schemas.streams import Stream
from schemas.topics import STREAMS
from tests.repo import schemas


def test_the_files_are_those_of_the_code() -> None:
    promised, today = schemas.read(), schemas.current()
    assert list(schemas.problems(promised, today)) == []
    assert schemas.stale(promised, today) == [], schemas.COMMAND
    assert promised.keys() == today.keys()


def test_no_version_of_a_file_was_ever_broken() -> None:
    today = schemas.current()
    broken = {
        problem
        for name, old in schemas.committed()
        for problem in schemas.problems({name: old}, today)
    }
    assert broken == set()


def test_what_was_frozen_is_in_the_history() -> None:
    """The record has the digest of every schema: a rewritten history would lose the promise."""
    record = json.loads((schemas.ROOT / schemas.FROZEN_BY).read_text(encoding="utf-8"))
    since = schemas.freezing_commit()
    # before it is committed, the record is that of the files beside it
    files = schemas.read() if since is None else dict(schemas.frozen(schemas.ROOT, since))
    assert {name: schemas.digest_of(schema) for name, schema in files.items()} == record["schemas"]


def test_messages_share_parts_and_do_not_copy_fields() -> None:
    assert list(schemas.repeated_fields(_commands_and_events())) == []


def test_a_message_that_copies_another_is_found() -> None:
    fields = [("a", int), ("b", str), ("c", int | None), ("d", str)]
    first, second = defstruct("First", fields), defstruct("Second", [*fields, ("e", int)])
    other = defstruct("Other", [*fields[:3], ("d", int)])
    repeated = list(schemas.repeated_fields({"First": first, "Second": second, "Other": other}))
    assert repeated == ["First and Second both have a, b, c, d: make them a part"]


def _commands_and_events() -> dict[str, type[Struct]]:
    every = schemas.messages().items()
    return {name: kind for name, kind in every if issubclass(kind, Message)}


def test_every_name_is_one_message() -> None:
    messages = schemas.messages()
    assert {"SubmitJob.v1", "LeaseGranted.v1", "Tick.v1", "Step.v1", "Entry.v1"} <= messages.keys()
    for name, message in messages.items():
        tag = message.__struct_config__.tag
        assert tag in (name, None) or tag == name.partition(".")[0].lower()


def test_every_old_version_is_brought_up_to_date_when_it_is_read() -> None:
    assert [name for stream in STREAMS.values() for name in schemas.without_upcast(stream)] == []


def test_an_old_version_without_upcast_is_named() -> None:
    class Held(Message): ...

    class HeldV2(Message): ...

    class HeldV3(Message): ...

    stream = Stream("held", "tenant", "toy", (), Message, Held | HeldV2 | HeldV3)
    assert schemas.without_upcast(stream) == ["Held.v1", "Held.v2"]
    lifted = replace(stream, upcasts=((Held, lambda _: HeldV2()),))
    assert schemas.without_upcast(lifted) == ["Held.v2"]


# --- each breaking change, planted ---------------------------------------------------------------


class Inner(Struct, tag="inner"):
    lane: Literal["premium", "free"]
    count: int = 3


class Other(Struct, tag="other"):
    text: str


FIELDS: Final[dict[str, Any]] = {
    "name": str,
    "count": int,
    "maybe": int | None,
    "lane": Literal["premium", "standard"],
    "inner": Inner,
    "either": Inner | Other,
    "many": tuple[Inner, ...],
    "table": dict[str, int],
    "bits": bytes,
}
DEFAULTS: Final[dict[str, Any]] = {"mode": (str, "slow"), "limit": (int | None, None)}


def changed(without: str = "", **fields: Any) -> schemas.Schema:
    """Schema of the message with some fields changed; a pair is a type and a default."""
    merged = {
        name: field for name, field in (FIELDS | DEFAULTS | fields).items() if name != without
    }
    wanted = [(name, field) for name, field in merged.items() if not isinstance(field, tuple)]
    defaulted = [(name, *field) for name, field in merged.items() if isinstance(field, tuple)]
    return schemas.schema_of(
        defstruct("Made", [*wanted, *defaulted], bases=(Message,), kw_only=True)
    )


class Narrow(Struct, tag="inner"):
    lane: Literal["premium"]
    count: int = 3


class Demanding(Struct, tag="inner"):
    lane: Literal["premium", "free"]
    node: str
    count: int = 3


class Renamed(Struct, tag="inner_two"):
    lane: Literal["premium", "free"]
    count: int = 3


class Position(Struct, array_like=True):
    offset: int
    index: int


class Swapped(Struct, array_like=True):
    offset: str
    index: int


class Short(Struct, array_like=True):
    offset: int


BREAKING: Final[dict[str, tuple[schemas.Schema, str]]] = {
    "a removed field": (changed("name"), "$.name: the field was removed"),
    "a removed optional field": (changed("mode"), "$.mode: the field was removed"),
    "a changed type": (changed(name=int), "$.name: string is accepted no longer"),
    "a whole number made a float": (changed(count=float), "$.count: integer is accepted no longer"),
    "text made bytes": (changed(name=bytes), "$.name: contentEncoding changed from None to base64"),
    "bytes made text": (changed(bits=str), "$.bits: contentEncoding changed from base64 to None"),
    "null refused": (changed(maybe=int), "$.maybe: null is accepted no longer"),
    "a new required field": (changed(extra=int), "$.extra: the field is new and required"),
    "optional made required": (changed(mode=str), "$.mode: the field became required"),
    "a changed default": (
        changed(mode=(str, "fast")),
        "$.mode: the default changed from 'slow' to 'fast'",
    ),
    "a removed value": (
        changed(lane=Literal["premium"]),
        "$.lane: the value 'standard' is accepted no longer",
    ),
    "text made a choice": (changed(name=Literal["a"]), "$.name: only ['a'] are accepted now"),
    "a value removed inside": (
        changed(inner=Narrow),
        "$.inner.lane: the value 'free' is accepted no longer",
    ),
    "a field required inside": (
        changed(inner=Demanding),
        "$.inner.node: the field is new and required",
    ),
    "a field required inside a list": (
        changed(many=tuple[Demanding, ...]),
        "$.many[].node: the field is new and required",
    ),
    "a member of a union removed": (
        changed(either=Inner),
        "$.either: object other is accepted no longer",
    ),
    "a tag changed": (changed(inner=Renamed), "$.inner: object inner is accepted no longer"),
    "values of a table changed": (
        changed(table=dict[str, str]),
        "$.table.*: integer is accepted no longer",
    ),
    "a list made one": (changed(many=Inner), "$.many: array is accepted no longer"),
}
ADDING: Final[dict[str, schemas.Schema]] = {
    "nothing": changed(),
    "an optional field": changed(extra=(int | None, None)),
    "a value": changed(lane=Literal["premium", "standard", "free"]),
    "a member of a union": changed(inner=Inner | Other),
    "null": changed(name=str | None),
    "a default": changed(name=(str, "nobody")),
    "anything": changed(name=Any),
}


@pytest.mark.parametrize("name", BREAKING)
def test_a_breaking_change_is_named_with_its_field(name: str) -> None:
    new, problem = BREAKING[name]
    assert list(schemas.breaks(changed(), new)) == [problem]


@pytest.mark.parametrize("name", ADDING)
def test_an_addition_is_allowed(name: str) -> None:
    assert list(schemas.breaks(changed(), ADDING[name])) == []


def test_positions_of_arrays_are_compared() -> None:
    old = changed(place=Position)
    assert list(schemas.breaks(old, changed(place=Swapped))) == [
        "$.place[0]: integer is accepted no longer"
    ]
    assert list(schemas.breaks(old, changed(place=Short))) == [
        "$.place[1]: the position was removed",
    ]


def test_bounds_move_outwards_only() -> None:
    inner, outer = {"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 0}
    assert list(schemas.breaks(inner, outer)) == []
    assert list(schemas.breaks(outer, inner)) == ["$: minimum changed from 0 to 1"]


def test_a_pattern_may_be_dropped_but_not_added() -> None:
    plain, bound = {"type": "string"}, {"type": "string", "pattern": "^a$"}
    assert list(schemas.breaks(bound, plain)) == []
    assert list(schemas.breaks(plain, bound)) == ["$: pattern changed from None to ^a$"]


def test_schemas_that_contain_themselves_end() -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#/$defs/T"}}}
    schema = {"$ref": "#/$defs/T", "$defs": {"T": tree}}
    assert list(schemas.breaks(schema, schema)) == []


def test_a_removed_message_is_named() -> None:
    assert list(schemas.problems({"Gone.v1": changed()}, {})) == [
        "Gone.v1: the message was removed; logs still hold it"
    ]


def test_the_command_adds_and_never_breaks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / schemas.REGISTRY
    file.parent.mkdir()
    assert schemas.main(tmp_path) == 0
    assert schemas.main(tmp_path) == 0
    assert capsys.readouterr().out.endswith(f"0 of {len(schemas.current())} schemas written\n")
    kept = file.read_text().replace("CancelJob:job_id", "CancelJob:job")
    file.write_text(kept)
    assert schemas.main(tmp_path) == 1
    stderr = capsys.readouterr().err
    assert "CancelJob.v1: $.job: the field was removed; make it a new version" in stderr
    assert file.read_text() == kept


def test_what_is_written_is_what_is_read() -> None:
    today = schemas.current()
    assert schemas.parse(schemas.as_text(today)) == today


def test_two_types_with_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two types on the log are called Made"):
        schemas.as_text({"Made.v1": changed(), "Made.v2": changed("name")})


def commit(root: Path) -> None:
    author = ("-c", "user.name=a", "-c", "user.email=a@b.example")
    for words in (("init",), ("add", "."), (*author, "commit", "-m", "a version")):
        subprocess.run(["git", *words], cwd=root, check=True, capture_output=True)


def breaks_in_history(root: Path, name: str) -> list[str]:
    """Problems of today's registry with every committed version of a message."""
    today = schemas.read(root)[name]
    committed = [old for known, old in schemas.committed(root) if known == name]
    return [problem for old in committed for problem in schemas.breaks(old, today)]


def test_a_file_that_was_edited_with_the_code_is_found_in_the_history(tmp_path: Path) -> None:
    """Versions count from the commit on that added the record which froze the vocabulary."""
    (tmp_path / schemas.REGISTRY).parent.mkdir()
    record = tmp_path / schemas.FROZEN_BY
    for version in (changed("count"), changed(), changed("name")):
        schemas.write(tmp_path, {"Made.v1": version})
        if version == changed():
            record.parent.mkdir(parents=True)
            record.touch()
        commit(tmp_path)
    assert breaks_in_history(tmp_path, "Made.v1") == ["$.name: the field was removed"]


def test_a_file_that_the_freezing_commit_left_alone_is_frozen_too(tmp_path: Path) -> None:
    (tmp_path / schemas.REGISTRY).parent.mkdir()
    schemas.write(tmp_path, {"Made.v1": changed()})
    commit(tmp_path)
    record = tmp_path / schemas.FROZEN_BY
    record.parent.mkdir(parents=True)
    record.touch()
    commit(tmp_path)
    schemas.write(tmp_path, {"Made.v1": changed("name")})
    assert breaks_in_history(tmp_path, "Made.v1") == ["$.name: the field was removed"]


def test_a_message_whose_file_was_committed_is_promised_by_the_registry_too(tmp_path: Path) -> None:
    record = tmp_path / schemas.FROZEN_BY
    record.parent.mkdir(parents=True)
    record.touch()
    file = tmp_path / schemas.FILES / "Made.v1.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(changed()))
    commit(tmp_path)
    file.unlink()
    schemas.write(tmp_path, {"Made.v1": changed("name")})
    commit(tmp_path)
    assert breaks_in_history(tmp_path, "Made.v1") == ["$.name: the field was removed"]
