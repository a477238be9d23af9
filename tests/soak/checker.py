"""What must be true of a soak's history, checked from its outside: logs, diaries and rows.

In the manner of Jepsen's Kafka workload: lost, duplicated, reordered, divergent. It knows the
meaning of the soak's events, and nothing of the code that made them.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.soak.history import Entry, Partition, Problem, StreamPartition, apply_acceptance_rule

OPEN_MAX: Final = 5
Line = Mapping[str, Any]
Rows = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class History:
    """Everything that a soak has recorded."""

    # (offset, value) of every record
    journals: Mapping[StreamPartition, Sequence[tuple[int, bytes]]]
    client: Sequence[Line] = ()  # client, owners: lines of their diaries
    owners: Sequence[Line] = ()
    # tables `needs`, `ends`, `totals` and `todos` as they are
    rows: Rows = field(default_factory=dict)
    rebuilt: Rows = field(default_factory=dict)  # the same, made from journals alone


@dataclass(frozen=True)
class Verdict:
    problems: tuple[Problem, ...]
    partitions: tuple[Partition, ...]


def check(history: History) -> Verdict:
    """Run all checks. A journal that contradicts itself is reported alone, without the others."""
    partitions = tuple(
        apply_acceptance_rule(partition_id, records)
        for partition_id, records in history.journals.items()
    )
    problems = [problem for partition in partitions for problem in partition.problems]
    if not problems:
        requests = [
            entry
            for partition in partitions
            if partition.partition_id.stream == "requests"
            for entry in partition.entries
        ]
        tally = [
            entry
            for partition in partitions
            if partition.partition_id.stream == "tally"
            for entry in partition.entries
        ]
        problems += [
            *_order(partitions),
            *_commands(history.client, requests),
            *_requests(requests),
            *_needs(requests, history.owners),
            *_reactions(requests, tally),
            *_limits(requests),
            *_replies(history.client, partitions),
            *_beliefs(history.owners, partitions),
            *_prefixes(history.owners, partitions),
            *_states(history.owners, partitions),
            *_rows(history, requests, tally),
        ]
    return Verdict(tuple(problems), partitions)


def _order(partitions: Iterable[Partition]) -> Iterator[Problem]:
    """Times never decrease, and the entries of a key are numbered without a gap."""
    for partition in partitions:
        at, seqs = 0, Counter[str]()
        for entry in partition.entries:
            seqs[entry.key] += 1
            if entry.at < at:
                text = f"offset {entry.offset} is older than the entry before it"
                yield Problem("reordered", str(partition.partition_id), text)
            if entry.seq != seqs[entry.key]:
                text = f"offset {entry.offset} has seq {entry.seq}, not {seqs[entry.key]}"
                yield Problem("reordered", str(partition.partition_id), text)
            at = entry.at


def _commands(client: Iterable[Line], requests: Sequence[Entry]) -> Iterator[Problem]:
    """Each acknowledged command is decided once and in order; nothing else is decided."""
    client = list(client)
    at_place = {(entry.partition_id.partition, entry.number): entry for entry in requests}
    decided = Counter(entry.command for entry in requests)
    for line in client:
        if line["what"] != "ack":
            continue
        entry = at_place.get((line["partition"], line["offset"]))
        where = f"requests/{line['partition']}"
        if entry is not None and entry.command == line["id"]:
            continue
        kind = "reordered" if decided[line["id"]] else "lost"
        said = "nothing" if entry is None else entry.command
        text = f"command {line['offset']} was {line['id']}, the journal has {said} for it"
        yield Problem(kind, where, text)
    sent = Counter(line["id"] for line in client if line["what"] == "send")
    for entry in requests:
        if entry.need is not None and decided[entry.command] > sent[entry.command]:
            kind = "duplicated" if sent[entry.command] else "invented"
            text = f"{entry.command} was sent {sent[entry.command]} times, and decided "
            yield Problem(kind, str(entry.partition_id), f"{text}{decided[entry.command]} times")


def _requests(requests: Iterable[Entry]) -> Iterator[Problem]:
    """One copy of a request is granted; later copies are answered as its repeats."""
    granted: dict[str, str] = {}
    copies: dict[str, set[str]] = defaultdict(set)
    for entry in requests:
        if entry.need is None:
            continue
        for event in entry.events_of("Repeated"):
            if event["of"] not in copies[entry.need]:
                text = f"offset {entry.offset} repeats {event['of']}, which was not decided"
                yield Problem("invented", str(entry.partition_id), text)
        for event in entry.events_of("Asked"):
            if event["need"] in granted:
                text = f"request {event['need']} was granted to {granted[event['need']]} already"
                yield Problem("duplicated", str(entry.partition_id), text)
            granted[event["need"]] = entry.command
        if entry.need in granted and not entry.events_of("Asked", "Repeated"):
            text = f"offset {entry.offset} decides a request again that was granted"
            yield Problem("duplicated", str(entry.partition_id), text)
        copies[entry.need].add(entry.command)


def _needs(requests: Iterable[Entry], owners: Iterable[Line]) -> Iterator[Problem]:
    """A need's effect runs at least once, and one outcome of it is accepted."""
    runs = Counter(line["need"] for line in owners if line["what"] == "effect")
    asked: dict[str, tuple[StreamPartition, str]] = {}
    ended: Counter[str] = Counter()
    for entry in requests:
        for event in entry.events_of("Asked"):
            asked[event["need"]] = entry.partition_id, event["way"]
        for event in entry.events_of("Answered", "Expired"):
            need = event["need"]
            ended[need] += 1
            if need not in asked:
                yield Problem(
                    "reordered", str(entry.partition_id), f"{need} ended before it was asked"
                )
            elif ended[need] > 1:
                yield Problem(
                    "duplicated", str(entry.partition_id), f"{need} ended {ended[need]} times"
                )
            if not runs[need] and entry.events_of("Answered"):
                yield Problem("invented", str(entry.partition_id), f"no effect ran for {need}")
    for need, (partition_id, way) in asked.items():
        if way != "keep" and not ended[need]:
            yield Problem("lost", str(partition_id), f"{need} has no outcome")
        if way == "keep" and not runs[need]:
            yield Problem("lost", str(partition_id), f"no effect ran for {need}")


def _reactions(requests: Iterable[Entry], tally: Iterable[Entry]) -> Iterator[Problem]:
    """Each need asked is counted once, in the order of its journal."""
    asked = {
        ("requests", entry.partition_id.partition, 0, entry.offset, 0): event["need"]
        for entry in requests
        for event in entry.events_of("Asked")
    }
    counted: Counter[tuple[str, int, int, int, int]] = Counter()
    newest: dict[tuple[StreamPartition, int], int] = {}
    totals: Counter[str] = Counter()
    for entry in tally:
        for event in entry.events_of("Counted"):
            source, where = entry.source, str(entry.partition_id)
            totals[entry.key] += 1
            if source is None or asked.get(source) != event["need"]:
                yield Problem("invented", where, f"offset {entry.offset} counts {event['need']}")
                continue
            counted[source] += 1
            if counted[source] > 1:
                yield Problem("duplicated", where, f"{event['need']} is counted again")
            elif source[3] <= newest.get((entry.partition_id, source[1]), -1):
                yield Problem("reordered", where, f"{event['need']} is counted out of order")
            if event["total"] != totals[entry.key]:
                text = f"offset {entry.offset} says {event['total']}, not {totals[entry.key]}"
                yield Problem("divergent", where, text)
            newest[entry.partition_id, source[1]] = source[3]
    for source, need in asked.items():
        if not counted[source]:
            yield Problem("lost", f"{source[0]}/{source[1]}", f"{need} was never counted")


def _limits(requests: Iterable[Entry]) -> Iterator[Problem]:
    for entry, state in _open_states(requests):
        if len(state.get(entry.key, ())) > OPEN_MAX:
            text = f"{entry.key} has {len(state[entry.key])} open needs at offset {entry.offset}"
            yield Problem("limit", str(entry.partition_id), text)


def _replies(client: Iterable[Line], partitions: Iterable[Partition]) -> Iterator[Problem]:
    """Each reply that a client got agrees with the journal."""
    entries = {partition.partition_id: partition.by_offset for partition in partitions}
    for line in client:
        if line["what"] != "reply":
            continue
        partition_id = StreamPartition(line["stream"], line["partition"])
        entry = entries.get(partition_id, {}).get(line["offset"])
        reported = (line["command_id"], line["code"], line["repeated_of"])
        if entry is None or reported != _outcome(entry):
            true = "nothing" if entry is None else _outcome(entry)
            text = f"replied {reported}, the journal has {true} at offset {line['offset']}"
            yield Problem("divergent", str(partition_id), text)


def _outcome(entry: Entry) -> tuple[str, str | None, str | None]:
    codes = [event["code"] for event in entry.events_of("Rejected")]
    repeats = [event["of"] for event in entry.events_of("Repeated")]
    return entry.command, codes[0] if codes else None, repeats[0] if repeats else None


def _beliefs(owners: Iterable[Line], partitions: Iterable[Partition]) -> Iterator[Problem]:
    """Every entry that an owner believed to be accepted is accepted by the rule."""
    entries = {partition.partition_id: partition.by_offset for partition in partitions}
    for line in owners:
        if line["what"] != "settled":
            continue
        partition_id = StreamPartition(line["stream"], line["partition"])
        entry = entries.get(partition_id, {}).get(line["offset"])
        if entry is None or entry.command != line["id"]:
            text = f"an owner believed in {line['id']} at offset {line['offset']}"
            yield Problem("divergent", str(partition_id), text)


def _prefixes(owners: Iterable[Line], partitions: Iterable[Partition]) -> Iterator[Problem]:
    """All readers accepted the same bytes, up to their positions."""
    reported = _reports_of(owners, "prefix")
    for partition in partitions:
        running = hashlib.sha256()
        hashes = []
        for entry in partition.entries:
            running.update(b"%d:" % entry.offset + entry.value)
            hashes.append((entry.offset, running.hexdigest()))
        yield from _compare(
            reported[partition.partition_id],
            hashes,
            hashlib.sha256().hexdigest(),
            partition.partition_id,
        )


def _states(owners: Iterable[Line], partitions: Iterable[Partition]) -> Iterator[Problem]:
    """The states that owners held are the folds of the accepted entries."""
    reported = _reports_of(owners, "state")
    for partition in partitions:
        states = (
            _open_states(partition.entries)
            if partition.partition_id.stream == "requests"
            else _totals(partition.entries)
        )
        hashes = [(entry.offset, _digest(state)) for entry, state in states]
        yield from _compare(
            reported[partition.partition_id], hashes, _digest({}), partition.partition_id
        )


def _reports_of(owners: Iterable[Line], what: str) -> dict[StreamPartition, list[tuple[int, str]]]:
    reports = defaultdict(list)
    for line in owners:
        if line["what"] == what:
            partition_id = StreamPartition(line["stream"], line["partition"])
            reports[partition_id].append((line["offset"], line["digest"]))
    return reports


def _compare(
    reported: list[tuple[int, str]],
    hashes: list[tuple[int, str]],
    empty: str,
    partition_id: StreamPartition,
) -> Iterator[Problem]:
    """Reported are (next offset, hash of all before it), hashes (offset, hash of all up to it)."""
    true, index = empty, 0
    for offset, digest in sorted(reported):
        while index < len(hashes) and hashes[index][0] < offset:
            true = hashes[index][1]
            index += 1
        if digest != true:
            yield Problem(
                "divergent", str(partition_id), f"a reader saw another history before {offset}"
            )


def _digest(state: Mapping[str, Any]) -> str:
    there = json.dumps({key: value for key, value in state.items() if value}, sort_keys=True)
    return hashlib.sha256(there.encode()).hexdigest()


def _open_states(requests: Iterable[Entry]) -> Iterator[tuple[Entry, dict[str, list[list[Any]]]]]:
    """Open needs, [need, until] by tenant, after each entry. The dictionary is reused."""
    state: dict[str, list[list[Any]]] = defaultdict(list)
    for entry in requests:
        for event in entry.events_of("Asked"):
            state[entry.key].append([event["need"], event["until"]])
        for event in entry.events_of("Answered", "Expired"):
            state[entry.key] = [need for need in state[entry.key] if need[0] != event["need"]]
        yield entry, state


def _totals(tally: Iterable[Entry]) -> Iterator[tuple[Entry, dict[str, int]]]:
    """What was counted by key, after each entry. The dictionary is reused."""
    totals: dict[str, int] = {}
    for entry in tally:
        totals.update((entry.key, event["total"]) for event in entry.events_of("Counted"))
        yield entry, totals


def _rows(history: History, requests: Iterable[Entry], tally: Iterable[Entry]) -> Iterator[Problem]:
    """Read models and to-do rows agree with the journals and with a rebuild from them."""
    opened: dict[str, tuple[str, int, str]] = {}
    ends: dict[str, tuple[str, str, int]] = {}
    for entry in requests:
        for event in entry.events_of("Asked"):
            opened[event["need"]] = entry.tenant, event["until"], event["way"]
        for event in entry.events_of("Answered", "Expired"):
            opened.pop(event["need"], None)
            how = event["type"].partition(".")[0]
            ends[event["need"]] = event["need"], how, entry.seq
    totals = {entry.key: event["total"] for entry in tally for event in entry.events_of("Counted")}
    expected: dict[str, set[tuple[Any, ...]]] = {
        "needs": {(need, tenant, until) for need, (tenant, until, _) in opened.items()},
        "ends": set(ends.values()),
        "totals": set(totals.items()),
        "todos": {
            ("answer", need, tenant, json.dumps(_asked(need, way, until), sort_keys=True))
            for need, (tenant, until, way) in opened.items()
        },
    }
    for name, rows in (("rows", history.rows), ("rebuilt rows", history.rebuilt)):
        for table, wanted in expected.items():
            actual = [_row(table, row) for row in rows.get(table, ())]
            if len(actual) != len(set(actual)) or set(actual) != wanted:
                more, less = set(actual) - wanted, wanted - set(actual)
                text = f"{len(more)} too many ({_some(more)}), {len(less)} missing ({_some(less)})"
                yield Problem("rows", f"{name} of {table}", text)


def _asked(need: str, way: str, until: int) -> dict[str, Any]:
    return {"type": "Asked.v1", "need": need, "way": way, "until": until}


def _row(table: str, row: Mapping[str, Any]) -> tuple[Any, ...]:
    match table:
        case "needs":
            return row["need"], row["tenant"], row["until"]
        case "ends":
            return row["need"], row["how"], row["seq"]
        case "totals":
            return row["key"], row["total"]
        case _:
            body = json.dumps(json.loads(row["body"]), sort_keys=True)
            return row["kind"], row["id"], row["tenant"], body


def _some(rows: Iterable[tuple[Any, ...]]) -> str:
    return ", ".join(str(row) for row in sorted(rows, key=repr)[:2]) or "none"
