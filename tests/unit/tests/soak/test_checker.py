"""The soak's checker detects each fault when it is planted in a correct history."""

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.soak.checker import History, Verdict, check
from tests.soak.history import NO_ENTRY, StreamPartition

UNTIL = 9_000_000
Event = dict[str, Any]


def asked(need: str, way: str = "answer") -> Event:
    return {"type": "Asked.v1", "need": need, "way": way, "until": UNTIL}


def ended(need: str, kind: str = "Answered") -> Event:
    return {"type": f"{kind}.v1", "need": need}


def counted(need: str, total: int) -> Event:
    return {"type": "Counted.v1", "need": need, "total": total}


@dataclass
class Journal:
    """Writes a partition as its owners would, and whatever else it is told to."""

    stream: str
    records: list[tuple[int, bytes]] = field(default_factory=list)
    epoch: int = -1
    cause: int = -1
    prev: bytes = NO_ENTRY
    seqs: Counter[str] = field(default_factory=Counter)
    last: dict[str, Any] = field(default_factory=dict)

    def put(self, record: dict[str, Any]) -> bytes:
        value = json.dumps(record).encode()
        self.records.append((len(self.records), value))
        return value

    def claim(self, owner: str) -> None:
        self.epoch = len(self.records)
        self.put({"record": "claim", "owner": owner, "nonce": "1"})

    def entry(self, command: str, *events: Event, key: str = "t", **changes: Any) -> int:
        """Append an entry that counts; its offset. `changes` are made after all."""
        offset, self.cause = len(self.records), self.cause + 1
        self.seqs[key] += 1
        self.last = {
            "record": "entry",
            "epoch": self.epoch,
            "cause": self.cause,
            "prev": base64.b64encode(self.prev).decode(),
            "at": 1_000 + offset,
            "command_id": command,
            "key": key,
            "tenant": key,
            "seq": self.seqs[key],
            "events": list(events),
            **changes,
        }
        value = self.put(self.last)
        self.prev = hashlib.blake2b(value, digest_size=32).digest()
        return offset

    def stray(self, **changes: Any) -> None:
        """The last entry again, as the next one and changed; the owner knows nothing of it."""
        self.put({**self.last, "cause": self.cause + 1, **changes})


@dataclass
class Plot:
    """One partition of each stream, and all that people wrote about them."""

    requests: Journal = field(default_factory=lambda: Journal("requests"))
    tally: Journal = field(default_factory=lambda: Journal("tally"))
    client: list[dict[str, Any]] = field(default_factory=list)
    owners: list[dict[str, Any]] = field(default_factory=list)
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {"ends": []})
    rebuilt: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {"ends": []})
    totals: int = 0

    def send(self, need: str, command: str) -> None:
        number = self.requests.cause + 1
        self.client += [
            {"what": "send", "need": need, "id": command},
            {"what": "ack", "id": command, "partition": 0, "offset": number},
        ]

    def ask(self, need: str, command: str, *events: Event) -> int:
        """A client's request that is granted, unless `events` say otherwise."""
        self.send(need, command)
        decided = events or (asked(need),)
        idempotency = {"key": need, "body": need}
        return self.requests.entry(command, *decided, idempotency=idempotency)

    def count(self, need: str, offset: int) -> None:
        self.totals += 1
        self.tally.entry(
            f"count-{need}",
            counted(need, self.totals),
            key="t-tally",
            source=["requests", 0, 0, offset, 0],
        )

    def answer(self, need: str) -> int:
        self.owners.append({"what": "effect", "need": need})
        offset = self.requests.entry(f"answer-{need}", ended(need))
        end = {"need": need, "how": "Answered", "seq": self.requests.seqs["t"]}
        for rows in (self.rows, self.rebuilt):
            rows["ends"] = [*(row for row in rows["ends"] if row["need"] != need), end]
        return offset

    def now_counted(self, total: int) -> None:
        self.rows["totals"] = self.rebuilt["totals"] = [{"key": "t-tally", "total": total}]

    def tell(self, what: str, offset: int, digest: str) -> None:
        self.owners.append(
            {"what": what, "stream": "requests", "partition": 0, "offset": offset, "digest": digest}
        )

    def checked(self) -> Verdict:
        journals = {
            StreamPartition(journal.stream, 0): journal.records
            for journal in (self.requests, self.tally)
        }
        return check(History(journals, self.client, self.owners, self.rows, self.rebuilt))


def digest(state: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def true_plot() -> Plot:
    """True: two requests answered, one of them sent twice, one kept open; a zombie's record."""
    plot = Plot()
    plot.requests.claim("first:1")
    plot.tally.claim("first:1")
    plot.count("n1", plot.ask("n1", "c1"))
    plot.ask("n1", "c2", {"type": "Repeated.v1", "of": "c1"})
    plot.answer("n1")
    plot.requests.claim("second:2")
    plot.requests.stray(epoch=0, command_id="from a zombie")
    plot.count("n2", plot.ask("n2", "c3"))
    plot.owners.append({"what": "effect", "need": "n3"})
    plot.count("n3", plot.ask("n3", "c4", asked("n3", "keep")))
    plot.owners.append(
        {
            "what": "settled",
            "stream": "requests",
            "partition": 0,
            "offset": 1,
            "id": "c1",
            "t_ns": 1,
        }
    )
    plot.tell("state", 2, digest({"t": [["n1", UNTIL]]}))
    plot.tell("prefix", 2, hashlib.sha256(b"1:" + plot.requests.records[1][1]).hexdigest())
    plot.client.append(
        {
            "what": "reply",
            "command_id": "c2",
            "stream": "requests",
            "partition": 0,
            "offset": 2,
            "code": None,
            "repeated_of": "c1",
        }
    )
    plot.answer("n2")
    body = json.dumps(asked("n3", "keep")).encode()
    plot.rows |= {
        "needs": [{"need": "n3", "tenant": "t", "until": UNTIL}],
        "totals": [{"key": "t-tally", "total": 3}],
        "todos": [{"kind": "answer", "id": "n3", "tenant": "t", "body": body}],
    }
    plot.rebuilt = {table: list(rows) for table, rows in plot.rows.items()}
    return plot


def test_a_true_history_has_no_problem_and_its_stale_record_is_void() -> None:
    verdict = true_plot().checked()
    assert verdict.problems == ()
    assert [partition.void for partition in verdict.partitions] == [[(5, "epoch", "first:1")], []]
    assert [len(partition.entries) for partition in verdict.partitions] == [6, 3]


def unanswered_command(plot: Plot) -> None:
    plot.send("n9", "c9")


def missing_record(plot: Plot) -> None:
    del plot.requests.records[2]


def uncounted(plot: Plot) -> None:
    plot.ask("n4", "c5")
    plot.answer("n4")


def without_outcome(plot: Plot) -> None:
    plot.count("n4", plot.ask("n4", "c5", asked("n4", "drop")))
    plot.now_counted(4)
    body = json.dumps(asked("n4", "drop")).encode()
    for rows in (plot.rows, plot.rebuilt):
        rows["needs"].append(_open_row("n4"))
        rows["todos"].append({"kind": "answer", "id": "n4", "tenant": "t", "body": body})


def _open_row(need: str) -> dict[str, Any]:
    return {"need": need, "tenant": "t", "until": UNTIL}


def command_decided_twice(plot: Plot) -> None:
    plot.requests.entry(
        "c1", {"type": "Repeated.v1", "of": "c1"}, idempotency={"key": "n1", "body": "n1"}
    )


def request_granted_twice(plot: Plot) -> None:
    plot.count("n1", plot.ask("n1", "c5"))
    plot.now_counted(4)
    plot.answer("n1")


def request_decided_again(plot: Plot) -> None:
    plot.ask("n1", "c5", {"type": "Rejected.v1", "code": "full", "message": ""})


def two_outcomes(plot: Plot) -> None:
    plot.requests.entry("tick", ended("n1", "Expired"))
    for rows in (plot.rows, plot.rebuilt):
        rows["ends"][0] = {"need": "n1", "how": "Expired", "seq": plot.requests.seqs["t"]}


def counted_twice(plot: Plot) -> None:
    plot.count("n1", 1)
    plot.now_counted(4)


def swapped_commands(plot: Plot) -> None:
    acks = [line for line in plot.client if line["what"] == "ack"]
    acks[0]["id"], acks[2]["id"] = acks[2]["id"], acks[0]["id"]


def counted_out_of_order(plot: Plot) -> None:
    first, second = plot.ask("n4", "c5"), plot.ask("n5", "c6")
    plot.count("n5", second)
    plot.count("n4", first)
    plot.answer("n4")
    plot.answer("n5")
    plot.now_counted(5)


def time_goes_back(plot: Plot) -> None:
    plot.requests.entry("tick", at=1)


def gap_in_seq(plot: Plot) -> None:
    plot.requests.seqs["t"] += 1
    plot.requests.entry("tick")


def false_belief(plot: Plot) -> None:
    plot.owners.append(
        {
            "what": "settled",
            "stream": "requests",
            "partition": 0,
            "offset": 5,
            "id": "c1",
            "t_ns": 1,
        }
    )


def other_bytes_read(plot: Plot) -> None:
    plot.tell("prefix", 3, hashlib.sha256(b"1:" + plot.requests.records[1][1]).hexdigest())


def other_state(plot: Plot) -> None:
    plot.tell("state", 8, digest({"t": [["n2", UNTIL + 1]]}))


def unclaimed_epoch(plot: Plot) -> None:
    plot.requests.stray(epoch=5)


def other_history(plot: Plot) -> None:
    plot.requests.stray(prev=base64.b64encode(NO_ENTRY).decode())


def garbage(plot: Plot) -> None:
    plot.requests.records.append((len(plot.requests.records), b"\xff{"))


def false_reply(plot: Plot) -> None:
    line = next(line for line in plot.client if line["what"] == "reply")
    line["repeated_of"] = None


def effect_never_ran(plot: Plot) -> None:
    plot.owners = [line for line in plot.owners if line.get("need") != "n2"]


def unsent_command(plot: Plot) -> None:
    plot.ask("n1", "c5", {"type": "Repeated.v1", "of": "c1"})
    plot.client = [line for line in plot.client if line.get("id") != "c5"]


def repeat_of_nothing(plot: Plot) -> None:
    plot.ask("n1", "c5", {"type": "Repeated.v1", "of": "c0"})


def too_many_open(plot: Plot) -> None:
    needs = [f"m{number}" for number in range(5)]
    for number, need in enumerate(needs):
        plot.count(need, plot.ask(need, f"d{number}"))
    for need in needs:
        plot.answer(need)
    plot.now_counted(8)


def missing_row(plot: Plot) -> None:
    plot.rows["todos"] = []


def leftover_row(plot: Plot) -> None:
    plot.rebuilt["needs"].append(_open_row("n1"))


PLANTED: dict[Callable[[Plot], None], str] = {
    unanswered_command: "lost",
    missing_record: "lost",
    uncounted: "lost",
    without_outcome: "lost",
    command_decided_twice: "duplicated",
    request_granted_twice: "duplicated",
    request_decided_again: "duplicated",
    two_outcomes: "duplicated",
    counted_twice: "duplicated",
    swapped_commands: "reordered",
    counted_out_of_order: "reordered",
    time_goes_back: "reordered",
    gap_in_seq: "reordered",
    false_belief: "divergent",
    other_bytes_read: "divergent",
    other_state: "divergent",
    unclaimed_epoch: "divergent",
    other_history: "divergent",
    garbage: "divergent",
    false_reply: "divergent",
    effect_never_ran: "invented",
    unsent_command: "invented",
    repeat_of_nothing: "invented",
    too_many_open: "limit",
    missing_row: "rows",
    leftover_row: "rows",
}


@pytest.mark.parametrize(
    ("plant", "kind"), PLANTED.items(), ids=lambda value: getattr(value, "__name__", value)
)
def test_a_planted_fault_is_found_and_named(plant: Callable[[Plot], None], kind: str) -> None:
    plot = true_plot()
    plant(plot)
    assert {problem.kind for problem in plot.checked().problems} == {kind}
