"""JSON Schemas of everything on the log, made from the code: `python -m tests.repo.schemas`.

`schemas/registry.txt` is the promise that each message can be read for ever, with a line for each
message, type and field. So today's schema must accept every document that the registry accepts, and
mean the same by it. That relation is transitive: what held from one version of the registry to the
next holds from the first to the last. Until it existed each message had a file in `schemas/json`.
"""

import io
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from typing import Any, Final, TypeAlias, get_args

import msgspec
from msgspec import Struct

from schemas.audit import AuditRecorded
from schemas.envelope import Claim, Entry, Envelope, Part, versioned
from schemas.streams import Stream
from schemas.telemetry import Heartbeat, Telemetry
from schemas.topics import STREAMS

ROOT: Final = Path(__file__).resolve().parents[2]
REGISTRY: Final = Path("schemas") / "registry.txt"
FILES: Final = "schemas/json"
FROZEN_BY: Final = "tests/histories/frozen.json"
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
REPEATED_MIN: Final = 4
COMMAND: Final = "python -m tests.repo.schemas"
DEFINITIONS: Final = "#/$defs/"
REFERENCES: Final = re.compile(f'"{re.escape(DEFINITIONS)}([^"]+)"')
TAGS: Final = ("type", "record")  # fields that tell the structs of a union apart
#: what a text means; what a value must be; bounds, which may only move outwards
MEANING: Final = ("contentEncoding", "format")
NARROWING: Final = ("pattern", "multipleOf", "additionalProperties")
LOWER: Final = ("minLength", "minItems", "minimum", "exclusiveMinimum")
UPPER: Final = ("maxLength", "maxItems", "maximum", "exclusiveMaximum")
Schema: TypeAlias = dict[str, Any]


def messages() -> dict[str, Any]:
    """Every type on the log by its versioned name: commands, events, telemetry, frames."""
    unions = [union for stream in STREAMS.values() for union in (stream.command, stream.event)]
    members = [member for union in (*unions, Telemetry) for member in get_args(union)]
    return {
        versioned(member.__name__): member
        for member in (*members, Heartbeat, AuditRecorded, Envelope, Claim, Entry)
    }


def current() -> dict[str, Schema]:
    return {name: schema_of(message) for name, message in sorted(messages().items())}


def repeated_fields(candidates: Mapping[str, type[Struct]]) -> Iterator[str]:
    """Pairs of messages that copy each other: REPEATED_MIN fields of the same name and type.

    A field that is a part, or a union with one, is no copy: that is how messages share fields.
    """
    plain = {
        name: {
            (field.name, str(field.type))
            for field in msgspec.structs.fields(message)
            if not any(_is_part(kind) for kind in (field.type, *get_args(field.type)))
        }
        for name, message in sorted(candidates.items())
    }
    for first, second in combinations(plain, 2):
        common = sorted(name for name, _ in plain[first] & plain[second])
        if len(common) >= REPEATED_MIN:
            yield f"{first} and {second} both have {', '.join(common)}: make them a part"


def _is_part(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Part)


def schema_of(message: Any) -> Schema:
    """Without the prose: documentation may change, what is accepted may not."""
    schema = {"$schema": DIALECT} | without_prose(msgspec.json.schema(message))
    as_read: Schema = json.loads(json.dumps(schema))
    return as_read


def without_prose(node: Any) -> Any:
    if isinstance(node, list):
        return [without_prose(child) for child in node]
    if not isinstance(node, dict):
        return node
    # `title` and `description` are also names of fields, whose schemas are objects
    return {
        name: without_prose(child)
        for name, child in node.items()
        if not (name in {"title", "description"} and isinstance(child, str))
    }


def without_upcast(stream: Stream) -> list[str]:
    """Old versions of events that nothing brings up to date when they are read."""
    names = {versioned(event.__name__): event for event in get_args(stream.event)}
    lifted = {event for event, _ in stream.upcasts}
    return [
        name
        for name, event in sorted(names.items())
        if newer_of(name) in names and event not in lifted
    ]


def newer_of(name: str) -> str:
    stem, _, version = name.rpartition(".v")
    return f"{stem}.v{int(version) + 1}"


# --- what breaks readers ------------------------------------------------------------------------


def breaks(old: Schema, new: Schema) -> Iterator[str]:
    """`field: what is wrong`, for all that `old` accepts and `new` does not, or reads otherwise."""
    yield from _Comparison(old.get("$defs", {}), new.get("$defs", {})).node(old, new, "$")


class _Comparison:
    def __init__(self, old: Schema, new: Schema) -> None:
        self._old, self._new = old, new
        self._seen: set[tuple[str, str]] = set()

    def node(self, old: Schema, new: Schema, at: str) -> Iterator[str]:
        """Each alternative of the old must be accepted by one of the new."""
        alternatives = list(_alternatives(new, self._new))
        for wanted in _alternatives(old, self._old):
            matching = [other for other in alternatives if _kind(other) in (_kind(wanted), "any")]
            differences = [list(self._alternative(wanted, other, at)) for other in matching]
            if not differences:
                yield f"{at}: {_kind(wanted)} is accepted no longer"
            elif all(differences):
                yield from min(differences, key=len)

    def _alternative(self, old: Schema, new: Schema, at: str) -> Iterator[str]:
        types = old.get("$id", ""), new.get("$id", "")
        if _kind(new) == "any" or (all(types) and types in self._seen):
            return
        self._seen.add(types)
        yield from _values(old, new, at)
        yield from self._fields(old, new, at)
        yield from self._items(old, new, at)

    def _fields(self, old: Schema, new: Schema, at: str) -> Iterator[str]:
        before, after = old.get("properties", {}), new.get("properties", {})
        for name, schema in before.items():
            if name not in after:
                yield f"{at}.{name}: the field was removed"
                continue
            yield from self.node(schema, after[name], f"{at}.{name}")
            known, default = schema.get("default", ...), after[name].get("default", ...)
            if known is not ... and default is not ... and known != default:
                yield f"{at}.{name}: the default changed from {known!r} to {default!r}"
        for name in new.get("required", ()):
            if name not in old.get("required", ()):
                how = "became required" if name in before else "is new and required"
                yield f"{at}.{name}: the field {how}"
        mapped = old.get("additionalProperties"), new.get("additionalProperties")
        if isinstance(mapped[0], dict) and isinstance(mapped[1], dict):
            yield from self.node(mapped[0], mapped[1], f"{at}.*")

    def _items(self, old: Schema, new: Schema, at: str) -> Iterator[str]:
        if isinstance(old.get("items"), dict):
            yield from self.node(old["items"], new.get("items", {}), f"{at}[]")
        before, after = old.get("prefixItems", []), new.get("prefixItems", [])
        for index, schema in enumerate(before):
            if index >= len(after):
                yield f"{at}[{index}]: the position was removed"
            else:
                yield from self.node(schema, after[index], f"{at}[{index}]")


def _values(old: Schema, new: Schema, at: str) -> Iterator[str]:
    allowed = new.get("enum")
    for value in old.get("enum", ()):
        if allowed is not None and value not in allowed:
            yield f"{at}: the value {value!r} is accepted no longer"
    if allowed is not None and "enum" not in old:
        yield f"{at}: only {allowed} are accepted now"
    for name in MEANING:
        if old.get(name) != new.get(name):
            yield f"{at}: {name} changed from {old.get(name)} to {new.get(name)}"
    for name in (*NARROWING, *LOWER, *UPPER):
        before, after = old.get(name), new.get(name)
        wider = (
            after is None
            or before == after
            or (isinstance(before, dict) and isinstance(after, dict))  # compared as nodes
            or (before is not None and name in LOWER and after < before)
            or (before is not None and name in UPPER and after > before)
        )
        if not wider:
            yield f"{at}: {name} changed from {before} to {after}"


def _alternatives(node: Schema, definitions: Schema) -> Iterator[Schema]:
    """The node without references and unions."""
    if "$ref" in node:
        name = node["$ref"].removeprefix(DEFINITIONS)
        for alternative in _alternatives(definitions[name], definitions):
            yield {"$id": name} | alternative
    elif "anyOf" in node:
        for alternative in node["anyOf"]:
            yield from _alternatives(alternative, definitions)
    else:
        yield node


def _kind(node: Schema) -> str:
    """A name for what can be compared: the JSON type, and the tag of a struct of a union."""
    for name in TAGS:
        if len(values := node.get("properties", {}).get(name, {}).get("enum", ())) == 1:
            return f"object {values[0]}"
    if "enum" in node:
        return {str: "string", int: "integer", bool: "boolean"}[type(node["enum"][0])]
    return str(node.get("type", "any"))


# --- files ----------------------------------------------------------------------------------------


def problems(promised: Mapping[str, Schema], today: Mapping[str, Schema]) -> Iterator[str]:
    """Breaking changes of what was promised, each with message and field."""
    for name, old in sorted(promised.items()):
        if name not in today:
            yield f"{name}: the message was removed; logs still hold it"
            continue
        for change in breaks(old, today[name]):
            yield f"{name}: {change}; make it a new version beside this one"


def stale(promised: Mapping[str, Schema], today: Mapping[str, Schema]) -> list[str]:
    """Messages that the registry lacks, or that something was added to."""
    return [name for name, schema in sorted(today.items()) if promised.get(name) != schema]


def read(root: Path = ROOT) -> dict[str, Schema]:
    path = root / REGISTRY
    return parse(path.read_text(encoding="utf-8")) if path.exists() else {}


def write(root: Path, schemas: Mapping[str, Schema]) -> None:
    (root / REGISTRY).write_text(as_text(schemas), encoding="utf-8")


def as_text(schemas: Mapping[str, Schema]) -> str:
    """`NAME {schema}` of each message and of each type they refer to, `NAME:FIELD {schema}` of each
    field.

    Raises ValueError where two types share a name.
    """
    lines: dict[str, str] = {}

    def add(name: str, node: Schema) -> None:
        line = json.dumps(node, sort_keys=True, separators=(",", ":"))
        if lines.setdefault(name, line) != line:
            raise ValueError(f"two types on the log are called {name}")

    for message, schema in schemas.items():
        rest = {key: value for key, value in schema.items() if key not in {"$schema", "$defs"}}
        add(message, rest)
        for name, node in schema.get("$defs", {}).items():
            fields = node.get("properties", {})
            add(name, {key: value for key, value in node.items() if key != "properties"})
            for field, kind in fields.items():
                add(f"{name}:{field}", kind)
    return "".join(f"{name} {line}\n" for name, line in sorted(lines.items()))


def parse(text: str) -> dict[str, Schema]:
    """Messages of a registry, each with the types that it refers to."""
    types: dict[str, Schema] = {}
    for line in text.splitlines():
        name, _, node = line.partition(" ")
        owner, _, field = name.partition(":")
        if field:
            types[owner].setdefault("properties", {})[field] = json.loads(node)
        else:
            types[name] = json.loads(node)
    referred = {name: set(REFERENCES.findall(json.dumps(node))) for name, node in types.items()}
    return {
        name: {"$schema": DIALECT} | types[name] | _definitions(name, types, referred)
        for name in types
        if is_message(name)
    }


def is_message(name: str) -> bool:
    return "." in name


def _definitions(
    message: str, types: Mapping[str, Schema], referred: Mapping[str, set[str]]
) -> Schema:
    reached, coming = set[str](), referred[message]
    while coming:
        reached |= coming
        coming = {each for name in coming for each in referred[name]} - reached
    return {"$defs": {name: types[name] for name in sorted(reached)}}


def committed(root: Path = ROOT) -> Iterator[tuple[str, Schema]]:
    """Every version of every schema that was committed since the vocabulary is frozen.

    The commit that added `FROZEN_BY` is the cut-off: no installation kept a journal before
    it, so the vocabulary could be made anew once. All files as it left them and all later versions
    count.
    """
    if since := freezing_commit(root):
        yield from frozen(root, since)
        later = ("rev-list", "--objects", "--ancestry-path", f"{since}..HEAD")
        listed = _git(root, b"", *later, "--", FILES, str(REGISTRY)).decode()
        yield from _contents(root, (line.partition(" ")[::2] for line in listed.splitlines()))


def freezing_commit(root: Path = ROOT) -> str | None:
    """The commit that added `FROZEN_BY`; None before there is one."""
    added = _git(root, b"", "log", "--diff-filter=A", "--format=%H", "--", FROZEN_BY).split()
    return added[-1].decode() if added else None


def frozen(root: Path, since: str) -> Iterator[tuple[str, Schema]]:
    """The files as the freezing commit left them."""
    listed = _git(root, b"", "ls-tree", "-r", since, "--", FILES, str(REGISTRY)).decode()
    rows = (line.split(maxsplit=3) for line in listed.splitlines())
    return _contents(root, ((digest, path) for _, _, digest, path in rows))


def digest_of(schema: Schema) -> str:
    """SHA-256 of the schema's canonical bytes."""
    return sha256(json.dumps(schema, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _contents(root: Path, listed: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Schema]]:
    """Messages of each listed (digest, path) that is a registry, or the file of one message."""
    pairs = [(digest, path) for digest, path in listed if Path(path).suffix in {".json", ".txt"}]
    digests = "".join(f"{digest}\n" for digest, _ in pairs)
    answer = io.BytesIO(_git(root, digests.encode(), "cat-file", "--batch"))
    for _, path in pairs:
        size = int(answer.readline().split()[-1])  # digest, type, size
        text = answer.read(size + 1)[:-1].decode()  # a line break follows
        if Path(path) == REGISTRY:
            yield from parse(text).items()
        else:
            yield Path(path).name.removesuffix(".json"), json.loads(text)


def _git(root: Path, stdin: bytes, *words: str) -> bytes:
    return subprocess.run(
        ["git", *words], cwd=root, input=stdin, capture_output=True, check=True
    ).stdout


def main(root: Path = ROOT) -> int:
    """Write the registry, unless that would break a promise."""
    promised, today = read(root), current()
    if wrong := list(problems(promised, today)):
        sys.stderr.write("nothing written:\n" + "".join(f"  {problem}\n" for problem in wrong))
        return 1
    fresh = stale(promised, today)
    write(root, today)
    sys.stdout.write(f"{len(fresh)} of {len(today)} schemas written\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
