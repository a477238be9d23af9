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

from tests.soak.history import Entry, Partition, Place, Problem, judged

OPEN_MAX: Final = 5
Line = Mapping[str, Any]
Rows = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class History:
    """All that a soak left behind.

    journals: (offset, value) of every record. client, owners: lines of their diaries. rows: tables
    `needs`, `ends`, `totals` and `todos` as they are; rebuilt: the same, made from journals alone.
    """

    journals: Mapping[Place, Sequence[tuple[int, bytes]]]
    client: Sequence[Line] = ()
    owners: Sequence[Line] = ()
    rows: Rows = field(default_factory=dict)
    rebuilt: Rows = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    problems: tuple[Problem, ...]
    partitions: tuple[Partition, ...]


def check(history: History) -> Verdict:
    """Everything. Where the rule itself finds a contradiction, only that is told."""
    partitions = tuple(judged(place, records) for place, records in history.journals.items())
    problems = [problem for one in partitions for problem in one.problems]
    if not problems:
        desk = [entry for one in partitions if one.place.stream == "desk" for entry in one.entries]
        tally = [
            entry for one in partitions if one.place.stream == "tally" for entry in one.entries
        ]
        problems += [
            *_order(partitions),
            *_commands(history.client, desk),
            *_requests(desk),
            *_needs(desk, history.owners),
            *_reactions(desk, tally),
            *_limits(desk),
            *_replies(history.client, partitions),
            *_beliefs(history.owners, partitions),
            *_prefixes(history.owners, partitions),
            *_states(history.owners, partitions),
            *_rows(history, desk, tally),
        ]
    return Verdict(tuple(problems), partitions)


def _order(partitions: Iterable[Partition]) -> Iterator[Problem]:
    """Time never goes back, and a key's entries are numbered without a gap."""
    for one in partitions:
        at, seqs = 0, Counter[str]()
        for entry in one.entries:
            seqs[entry.key] += 1
            if entry.at < at:
                text = f"offset {entry.offset} is older than the entry before it"
                yield Problem("reordered", str(one.place), text)
            if entry.seq != seqs[entry.key]:
                text = f"offset {entry.offset} has seq {entry.seq}, not {seqs[entry.key]}"
                yield Problem("reordered", str(one.place), text)
            at = entry.at


def _commands(client: Iterable[Line], desk: Sequence[Entry]) -> Iterator[Problem]:
    """An acknowledged command is decided once, in its place; no copy that was not sent is."""
    client = list(client)
    at_place = {(entry.place.partition, entry.number): entry for entry in desk}
    decided = Counter(entry.command for entry in desk)
    for line in client:
        if line["what"] != "ack":
            continue
        found = at_place.get((line["partition"], line["offset"]))
        where = f"desk/{line['partition']}"
        if found is not None and found.command == line["id"]:
            continue
        kind = "reordered" if decided[line["id"]] else "lost"
        said = "nothing" if found is None else found.command
        text = f"command {line['offset']} was {line['id']}, the journal has {said} for it"
        yield Problem(kind, where, text)
    sent = Counter(line["id"] for line in client if line["what"] == "send")
    for entry in desk:
        if entry.need is not None and decided[entry.command] > sent[entry.command]:
            kind = "duplicated" if sent[entry.command] else "invented"
            text = f"{entry.command} was sent {sent[entry.command]} times, and decided "
            yield Problem(kind, str(entry.place), f"{text}{decided[entry.command]} times")


def _requests(desk: Iterable[Entry]) -> Iterator[Problem]:
    """Of the copies of a request one is granted; those after it are repeats of it."""
    granted: dict[str, str] = {}
    copies: dict[str, set[str]] = defaultdict(set)
    for entry in desk:
        if entry.need is None:
            continue
        for event in entry.events_of("Repeated"):
            if event["of"] not in copies[entry.need]:
                text = f"offset {entry.offset} repeats {event['of']}, which was not decided"
                yield Problem("invented", str(entry.place), text)
        for event in entry.events_of("Asked"):
            if event["need"] in granted:
                text = f"request {event['need']} was granted to {granted[event['need']]} already"
                yield Problem("duplicated", str(entry.place), text)
            granted[event["need"]] = entry.command
        if entry.need in granted and not entry.events_of("Asked", "Repeated"):
            text = f"offset {entry.offset} decides a request again that was granted"
            yield Problem("duplicated", str(entry.place), text)
        copies[entry.need].add(entry.command)


def _needs(desk: Iterable[Entry], owners: Iterable[Line]) -> Iterator[Problem]:
    """A need's effect runs at least once, and one outcome of it is accepted."""
    runs = Counter(line["need"] for line in owners if line["what"] == "effect")
    asked: dict[str, tuple[Place, str]] = {}
    ended: Counter[str] = Counter()
    for entry in desk:
        for event in entry.events_of("Asked"):
            asked[event["need"]] = entry.place, event["way"]
        for event in entry.events_of("Answered", "Expired"):
            need = event["need"]
            ended[need] += 1
            if need not in asked:
                yield Problem("reordered", str(entry.place), f"{need} ended before it was asked")
            elif ended[need] > 1:
                yield Problem("duplicated", str(entry.place), f"{need} ended {ended[need]} times")
            if not runs[need] and entry.events_of("Answered"):
                yield Problem("invented", str(entry.place), f"nobody worked on {need}")
    for need, (place, way) in asked.items():
        if way != "keep" and not ended[need]:
            yield Problem("lost", str(place), f"{need} has no outcome")
        if way == "keep" and not runs[need]:
            yield Problem("lost", str(place), f"nobody worked on {need}")


def _reactions(desk: Iterable[Entry], tally: Iterable[Entry]) -> Iterator[Problem]:
    """Each need asked is counted once, in the order of its journal."""
    asked = {
        ("desk", entry.place.partition, 0, entry.offset, 0): event["need"]
        for entry in desk
        for event in entry.events_of("Asked")
    }
    counted: Counter[tuple[str, int, int, int, int]] = Counter()
    newest: dict[tuple[Place, int], int] = {}
    totals: Counter[str] = Counter()
    for entry in tally:
        for event in entry.events_of("Counted"):
            source, where = entry.source, str(entry.place)
            totals[entry.key] += 1
            if source is None or asked.get(source) != event["need"]:
                yield Problem("invented", where, f"offset {entry.offset} counts {event['need']}")
                continue
            counted[source] += 1
            if counted[source] > 1:
                yield Problem("duplicated", where, f"{event['need']} is counted again")
            elif source[3] <= newest.get((entry.place, source[1]), -1):
                yield Problem("reordered", where, f"{event['need']} is counted out of order")
            if event["total"] != totals[entry.key]:
                text = f"offset {entry.offset} says {event['total']}, not {totals[entry.key]}"
                yield Problem("divergent", where, text)
            newest[entry.place, source[1]] = source[3]
    for source, need in asked.items():
        if not counted[source]:
            yield Problem("lost", f"{source[0]}/{source[1]}", f"{need} was never counted")


def _limits(desk: Iterable[Entry]) -> Iterator[Problem]:
    for entry, state in _desk_states(desk):
        if len(state.get(entry.key, ())) > OPEN_MAX:
            text = f"{entry.key} has {len(state[entry.key])} open needs at offset {entry.offset}"
            yield Problem("limit", str(entry.place), text)


def _replies(client: Iterable[Line], partitions: Iterable[Partition]) -> Iterator[Problem]:
    """What a client was told is what the journal says."""
    entries = {one.place: one.by_offset for one in partitions}
    for line in client:
        if line["what"] != "reply":
            continue
        place = Place(line["stream"], line["partition"])
        entry = entries.get(place, {}).get(line["offset"])
        told = (line["command_id"], line["code"], line["repeated_of"])
        if entry is None or told != _outcome(entry):
            true = "nothing" if entry is None else _outcome(entry)
            text = f"told {told}, the journal has {true} at offset {line['offset']}"
            yield Problem("divergent", str(place), text)


def _outcome(entry: Entry) -> tuple[str, str | None, str | None]:
    codes = [event["code"] for event in entry.events_of("Rejected")]
    repeats = [event["of"] for event in entry.events_of("Repeated")]
    return entry.command, codes[0] if codes else None, repeats[0] if repeats else None


def _beliefs(owners: Iterable[Line], partitions: Iterable[Partition]) -> Iterator[Problem]:
    """What an owner took for accepted counts for everybody."""
    entries = {one.place: one.by_offset for one in partitions}
    for line in owners:
        if line["what"] != "settled":
            continue
        place = Place(line["stream"], line["partition"])
        entry = entries.get(place, {}).get(line["offset"])
        if entry is None or entry.command != line["id"]:
            text = f"an owner believed in {line['id']} at offset {line['offset']}"
            yield Problem("divergent", str(place), text)


def _prefixes(owners: Iterable[Line], partitions: Iterable[Partition]) -> Iterator[Problem]:
    """All readers accepted the same bytes, from the first record to where they were."""
    told = _told(owners, "prefix")
    for one in partitions:
        running = hashlib.sha256()
        hashes = []
        for entry in one.entries:
            running.update(b"%d:" % entry.offset + entry.value)
            hashes.append((entry.offset, running.hexdigest()))
        yield from _compare(told[one.place], hashes, hashlib.sha256().hexdigest(), one.place)


def _states(owners: Iterable[Line], partitions: Iterable[Partition]) -> Iterator[Problem]:
    """What owners took for the state is the fold of what counts."""
    told = _told(owners, "state")
    for one in partitions:
        states = _desk_states(one.entries) if one.place.stream == "desk" else _totals(one.entries)
        hashes = [(entry.offset, _digest(state)) for entry, state in states]
        yield from _compare(told[one.place], hashes, _digest({}), one.place)


def _told(owners: Iterable[Line], what: str) -> dict[Place, list[tuple[int, str]]]:
    found = defaultdict(list)
    for line in owners:
        if line["what"] == what:
            place = Place(line["stream"], line["partition"])
            found[place].append((line["offset"], line["digest"]))
    return found


def _compare(
    told: list[tuple[int, str]], hashes: list[tuple[int, str]], empty: str, place: Place
) -> Iterator[Problem]:
    """`told`: (next offset, hash of all before it); `hashes`: (offset, hash of all up to it)."""
    true, index = empty, 0
    for offset, digest in sorted(told):
        while index < len(hashes) and hashes[index][0] < offset:
            true = hashes[index][1]
            index += 1
        if digest != true:
            yield Problem("divergent", str(place), f"somebody saw another history before {offset}")


def _digest(state: Mapping[str, Any]) -> str:
    there = json.dumps({key: one for key, one in state.items() if one}, sort_keys=True)
    return hashlib.sha256(there.encode()).hexdigest()


def _desk_states(desk: Iterable[Entry]) -> Iterator[tuple[Entry, dict[str, list[list[Any]]]]]:
    """Open needs, [need, until] by tenant, after each entry. The dictionary is reused."""
    state: dict[str, list[list[Any]]] = defaultdict(list)
    for entry in desk:
        for event in entry.events_of("Asked"):
            state[entry.key].append([event["need"], event["until"]])
        for event in entry.events_of("Answered", "Expired"):
            state[entry.key] = [one for one in state[entry.key] if one[0] != event["need"]]
        yield entry, state


def _totals(tally: Iterable[Entry]) -> Iterator[tuple[Entry, dict[str, int]]]:
    """What was counted by key, after each entry. The dictionary is reused."""
    totals: dict[str, int] = {}
    for entry in tally:
        totals.update((entry.key, event["total"]) for event in entry.events_of("Counted"))
        yield entry, totals


def _rows(history: History, desk: Iterable[Entry], tally: Iterable[Entry]) -> Iterator[Problem]:
    """Views and to-do rows are what the journals say, and what a rebuild makes of them."""
    opened: dict[str, tuple[str, int, str]] = {}
    ends: dict[str, tuple[str, str, int]] = {}
    for entry in desk:
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
            found = [_row(table, row) for row in rows.get(table, ())]
            if len(found) != len(set(found)) or set(found) != wanted:
                more, less = set(found) - wanted, wanted - set(found)
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
