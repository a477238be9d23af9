"""`SENDERS` allows exactly the commands that each service sends."""

import re
from pathlib import Path
from typing import Any, Final, get_args

import pytest

import services
from schemas.envelope import Tick
from schemas.streams import Stream
from schemas.topics import ACCOUNT, JOB, POOL, STREAMS

pytestmark = pytest.mark.security

SOURCES: Final = {
    folder.name: "\n".join(
        path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*.py"))
        if folder / "domain" not in path.parents or path.name == "liveness.py"
    )
    for folder in Path(services.__path__[0]).iterdir()
    if folder.is_dir()
}
#: made in a module that several services use
SHARED: Final = {("engine", "CountAnswers"), ("trainer", "CountAnswers")}
#: made for another stream
ELSEWHERE: Final = {("gateway", "WithdrawNodeKeys")}
#: the agent of a cluster is a node: it sends as one, and has no rights of its own
AS_A_NODE: Final = {
    *(("cluster", "ReportExit"), ("cluster", "ConfirmFreed")),
    *(("cluster", "ReportWait"), ("trainer", "ReportWait")),
}
#: sent by an earlier version alone
OLD: Final = {("scheduler", "RecordWait")}


def types_of(union: Any) -> tuple[type[Any], ...]:
    return tuple(kind for part in get_args(union) for kind in (types_of(part) or (part,)))


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS.keys())
def test_every_command_may_be_sent_by_those_who_make_it(stream: Stream) -> None:
    for command in set(types_of(stream.command)) - {Tick}:
        made_by = {
            service
            for service, source in SOURCES.items()
            if re.search(rf"\b{command.__name__}\(|build_from\(\s*{command.__name__}\b", source)
        }
        permitted = {name for name in SOURCES if stream.may_send(name, command)}
        named = {(service, command.__name__) for service in made_by ^ permitted}
        assert named <= SHARED | ELSEWHERE | AS_A_NODE | OLD


def test_deadlines_are_a_matter_of_the_owner() -> None:
    for stream in STREAMS.values():
        may = [name for name in SOURCES if stream.may_send(name, Tick)]
        assert may == ([stream.owner] if Tick in types_of(stream.command) else [])


def test_security_c2_a_node_reports_and_counts_and_nothing_else() -> None:
    def sent(stream: Stream) -> set[str]:
        may = (command for command in types_of(stream.command))
        return {command.__name__ for command in may if stream.may_send("trainer", command)}

    assert sent(ACCOUNT) == {"CountAnswers"}
    assert sent(JOB) == set()
    assert not {"ObserveNodes", "RequestPlacement", "ForgetNode", "Tick"} & sent(POOL)
