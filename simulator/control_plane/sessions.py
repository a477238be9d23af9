"""Sessions: a client that asks, the process that answers, and a second book of both.

The weights of a process are a chain of hashes over the commands that change them, so that an answer
of any other history than the one on the log has another hash.
"""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from schemas import errors
from schemas.envelope import Rejected, Repeated
from schemas.job import RaiseSession
from schemas.session import (
    CHANGING,
    AnswerCommand,
    CommandAnswered,
    CommandTaken,
    EndSession,
    SessionClosed,
    SessionCommand,
    SessionCommandKind,
    SessionErased,
    SessionLeased,
    SessionOpened,
    SessionTerms,
    SessionTermsSet,
    TakeCommand,
    TouchSession,
)
from schemas.topics import SESSION
from schemas.training import AttemptOutcome, BlobFile, FailureCause
from services.trainer.domain.command_feed import CommandFeed
from simulator.control_plane.sim_context import session_of
from simulator.control_plane.tenants import SimTenant
from simulator.engine.sim_log import READ_WAIT_MS
from tunery.runtime.bus.abstract import Unavailable
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.journal.reader import START, JournalReader

if TYPE_CHECKING:
    from simulator.control_plane.attempts import AttemptTask
    from simulator.control_plane.errands import SimWorld

TOKENS: Final = 10  # of a pass
SAMPLED: Final = 3  # of a sample, and of its prompt
SAVED_AGAIN_MS: Final = 3_000  # worlds last for minutes
TRIES_MAX: Final = 40  # until the session has been opened
KINDS: Final[tuple[SessionCommandKind, ...]] = ("forward_backward", "optim_step", "forward")


def _hash(*texts: str) -> str:
    return sha256(" ".join(texts).encode()).hexdigest()


def _file(sha: str) -> BlobFile:
    return BlobFile(name="body", blob=f"t/bodies/{sha}", sha256=sha, bytes=1)


def _answer(weights: str, command: SessionCommand) -> str:
    """Hash of the answer of these weights; a sampler has weights of its own."""
    return _hash("" if command.sampler else weights, command.name, command.body.sha256)


# --- the client -----------------------------------------------------------------------------------


async def loop_at_clients(world: "SimWorld", rng: Random) -> None:
    """Each tenant has a loop of its own."""
    seeds = [rng.randrange(10**6) for _ in world.tenants]
    clients = [
        _Client(tenant, world.context.chance(f"client {seed}"))
        for tenant, seed in zip(world.tenants, seeds, strict=True)
    ]
    await asyncio.gather(*(client.loop() for client in clients))


class _Client:
    """Asks, twice or out of order now and then, raises what is used up, and ends or is silent."""

    def __init__(self, tenant: SimTenant, rng: Random) -> None:
        self._tenant, self._rng, self._id = tenant, rng, session_of(tenant.name)
        self._max_tokens = TOKENS * rng.randint(2, 6)
        self._max_ms = 1_000 * rng.choice((50, 100, 900))

    async def loop(self) -> None:
        """Submit a session and use it."""
        tenant, rng = self._tenant, self._rng
        terms = SessionTerms(
            client="client",
            max_tokens=self._max_tokens,
            max_ms=self._max_ms,
            kept_ms=self._max_ms,  # it is erased before the world ends
        )
        await tenant.submit_as(self._id, 0, training_file="", session=terms)
        seqs = list(range(1, rng.randint(6, 16)))
        for at in range(len(seqs) - 1):
            if rng.random() < 0.2:
                seqs[at], seqs[at + 1] = seqs[at + 1], seqs[at]
        for seq in seqs:
            kind = KINDS[(seq - 1) % len(KINDS)]
            command = SessionCommand(
                seq=seq,
                kind=kind,
                body=_file(_hash(self._id, str(seq))),
                tokens=0 if kind == "optim_step" else TOKENS,
            )
            if not await self._take(command):
                return
            await self._disturb(command)
            await tenant.port.sleep(rng.randint(0, 6_000))
        if rng.random() < 0.7:  # it may wait at its cap
            await self._raise(1_000 * TOKENS, 1_000_000)
        if rng.random() < 0.7:
            await tenant.ask(SESSION.name, EndSession(), self._id)

    async def _disturb(self, command: SessionCommand) -> None:
        """Send more than a command: itself, another one of its number, a sample, a sign."""
        rng, seq = self._rng, command.seq
        if rng.random() < 0.3:
            await self._ask(command)
        if rng.random() < 0.1:
            await self._ask(replace(command, body=_file(_hash("other"))))
        if rng.random() < 0.2:
            body = _file(_hash("drawn", str(seq)))
            await self._ask(
                SessionCommand(
                    seq=seq, kind="sample", body=body, sampler="s", prompt_tokens=SAMPLED
                )
            )
        if rng.random() < 0.3:
            await self._tenant.ask(SESSION.name, TouchSession(), self._id)

    async def _ask(self, command: SessionCommand) -> Rejected | None:
        return await self._tenant.ask(SESSION.name, TakeCommand(command=command), self._id)

    async def _take(self, command: SessionCommand) -> bool:
        """Ask until it is taken; False: there is no such session any more, or it is over."""
        for _ in range(TRIES_MAX):
            refused = await self._ask(command)
            if refused is None:
                return True
            if refused.code == errors.BUDGET_EXCEEDED:
                await self._raise(self._max_tokens + 4 * TOKENS, self._max_ms)
            elif refused.code != errors.NOT_FOUND or self._id not in self._tenant.jobs:
                return False
            await self._tenant.port.sleep(2_000)
        return False

    async def _raise(self, max_tokens: int, max_ms: int) -> None:
        raised = RaiseSession(job_id=self._id, max_tokens=max_tokens, max_ms=max_ms)
        if await self._tenant.ask("job", raised) is None:
            self._max_tokens, self._max_ms = max_tokens, max_ms


# --- the process ----------------------------------------------------------------------------------


class CommandLoop:
    """The process of an attempt at a session: it answers commands instead of stepping over rows."""

    def __init__(self, task: "AttemptTask", loaded: str | None, *, listens: bool) -> None:
        self._task, self._listens = task, listens
        self._id, self._attempt = task.attempt.grant.job_id, task.attempt
        self._partition = partition_of(self._id.encode())
        self._weights = "" if loaded is None else task.context.session_weights[loaded]
        self._saved: int | None = None  # step of the newest checkpoint of this attempt
        self._said_ms = 0  # when that was said last
        self._feed = CommandFeed(self._attempt.grant.attempt)
        self._has_gradients = False

    async def run(self) -> tuple[AttemptOutcome, FailureCause | None]:
        """Answer until the last command, or until it is stopped or fails."""
        port = self._task.agent.port
        reader = JournalReader(port, SESSION, {self._partition: START})
        await reader.open()
        while (end := await self._stopped()) is None:
            try:
                batches = await reader.read(READ_WAIT_MS)
            except Unavailable:
                await port.sleep(1_000)
                continue
            for batch in batches.values():
                for accepted in batch.accepted:
                    if accepted.header.key == self._id:
                        self._feed.fold(accepted.events)
            if not (reader.caught_up(self._partition) and self._feed.is_leased):
                continue
            command = self._next()
            if command is not None:
                await self._do(command)
            elif self._feed.is_ending:
                return "succeeded", None
            else:
                await self._wait()
        return end

    async def _stopped(self) -> tuple[AttemptOutcome, FailureCause | None] | None:
        target = self._attempt.target
        if target == "kill":
            return "preempted", None
        if target == "drain" and self._listens:
            await self._save()
            return "preempted", None
        failure = self._task.failure()
        return None if failure is None else ("failed", failure)

    def _next(self) -> SessionCommand | None:
        for command in self._feed.commands.values():
            if command.sampler and command.name not in self._feed.answered:
                return command
        return self._feed.commands.get(str(self._attempt.step + 1))

    async def _do(self, command: SessionCommand) -> None:
        await self._task.agent.port.sleep(self._task.rng.randint(50, 1_500))
        if self._attempt.target == "kill":
            return
        if command.kind in CHANGING:
            self._weights = _hash(self._weights, command.body.sha256)
            self._has_gradients = command.kind == "forward_backward"
        if not command.sampler:
            self._attempt.step = command.seq
        if command.name not in self._feed.answered:
            self._feed.answered.add(command.name)
            answer = AnswerCommand(
                attempt=self._attempt.grant.attempt,
                name=command.name,
                answer=_file(_answer(self._weights, command)),
                sampled=SAMPLED if command.kind == "sample" else 0,
            )
            tenant = self._attempt.grant.tenant
            await self._task.agent.say(SESSION.name, self._id, tenant, answer)
        if command.kind == "optim_step" and self._task.rng.random() < 0.5:
            await self._save()

    async def _save(self) -> None:
        """Write a checkpoint, unless gradients wait for a step."""
        if self._has_gradients or self._attempt.step == self._saved:
            return
        self._saved = self._attempt.step
        await self._report()

    async def _wait(self) -> None:
        """Save what waits for its client, and say now and then that nothing has changed."""
        if self._task.agent.port.monotonic_ms() - self._said_ms < SAVED_AGAIN_MS:
            return
        if self._attempt.step == self._saved and not self._has_gradients:
            self._task.context.broker.tally.add("idle session said that it is saved")
            await self._report()
        await self._save()

    async def _report(self) -> None:
        weights, task = self._weights, self._task
        self._said_ms = task.agent.port.monotonic_ms()
        report = self._attempt.capture(self._said_ms)
        if report is not None:
            task.context.session_weights[report.checkpoint.manifest_sha256] = weights
            await task.agent.port.sleep(task.rng.randint(0, 2_000))
            await task.agent.fact(report)


# --- the second book ------------------------------------------------------------------------------


@dataclass
class SessionBook:
    """One session, from its journal alone."""

    max_tokens: int = 0
    tokens: int = 0
    commands: dict[str, SessionCommand] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    is_leased: bool = False
    is_closed: bool = False
    is_erased: bool = False

    def weights(self, seq: int) -> str | None:
        """The weights after command `seq`; None: not all commands up to it have come."""
        weights = ""
        for number in range(1, seq + 1):
            command = self.commands.get(str(number))
            if command is None:
                return None
            if command.kind in CHANGING:
                weights = _hash(weights, command.body.sha256)
        return weights


@dataclass
class SessionBooks:
    """All sessions; `violations` is what did not hold."""

    books: dict[str, SessionBook] = field(default_factory=lambda: defaultdict(SessionBook))
    violations: list[str] = field(default_factory=list)

    def enter(self, session_id: str, events: tuple[Any, ...]) -> None:
        """One decision of `session`."""
        book = self.books[session_id]
        for event in events:
            if book.is_closed and not isinstance(event, SessionErased | Rejected | Repeated):
                self._say(session_id, f"{event} after its end")
            match event:
                case SessionOpened(terms=terms) | SessionTermsSet(terms=terms):
                    if terms.max_tokens < book.max_tokens:
                        self._say(session_id, f"is lowered to {terms}")
                    book.max_tokens = terms.max_tokens
                case SessionLeased():
                    book.is_leased = True
                case CommandTaken(command=command):
                    self._take(session_id, book, command)
                case CommandAnswered():
                    self._answer(session_id, book, event)
                case SessionClosed():
                    book.is_closed = True
                case SessionErased():
                    if book.is_erased or not book.is_closed:
                        self._say(session_id, "is erased twice, or before its end")
                    book.is_erased = True
                case _:
                    pass

    def _take(self, session_id: str, book: SessionBook, command: SessionCommand) -> None:
        if command.name in book.commands:
            self._say(session_id, f"takes {command.name} twice")
        book.commands[command.name] = command
        book.tokens += command.tokens
        if book.tokens > book.max_tokens:
            self._say(session_id, f"has taken {book.tokens} tokens of {book.max_tokens}")

    def _answer(self, session_id: str, book: SessionBook, event: CommandAnswered) -> None:
        command = book.commands.get(event.name)
        if command is None or event.name in book.answered or not book.is_leased:
            self._say(session_id, f"answers {event.name} too often, or unasked")
            return
        book.answered.add(event.name)
        if (event.trained, event.prefilled) != (command.trained, command.prefilled):
            self._say(session_id, f"counts other tokens of {event.name} than it took")
        weights = book.weights(0 if command.sampler else command.seq)
        if weights is None or _answer(weights, command) != event.answer.sha256:
            self._say(session_id, f"answers {event.name} from other weights than its log has")

    def violations_at_the_end(self) -> list[str]:
        """Violations that can be seen once all jobs have ended."""
        return [
            f"session: {session_id} is open after all jobs have ended"
            for session_id, book in self.books.items()
            if book.max_tokens and not book.is_closed
        ]

    def _say(self, session_id: str, text: str) -> None:
        self.violations.append(f"session: {session_id} {text}")
