"""Both deciders joined by the production reactions, one tenant, and the ledger that follows."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from schemas.dataset import PinDataset
from schemas.envelope import Header, Message
from schemas.job import JobEnded, RecordBase, RecordDataset
from schemas.model import PinBase
from schemas.node import LeaseSeen, NodeSeen
from schemas.pool import (
    ConfirmFreed,
    ObserveNodes,
    ReportCheckpoint,
    ReportExit,
    ReportStarted,
    Token,
)
from schemas.training import AttemptOutcome, AttemptStart, FailureCause, SkippedCheckpoint
from services.billing.project import project_ledger
from services.scheduler.app import JOBS, POOLS
from services.scheduler.domain.pool.state import Lease, open_leases
from services.scheduler.react import react_job, react_pool
from simulator.control_plane.samples import (
    BASE,
    POOL,
    PREPARED,
    SCORED,
    TRAINED,
    checkpoint,
    limits,
    node,
    submit,
)
from tests.unit.services.scheduler.fold import Decider, header_of, of
from tunery.runtime.verbs import Upsert

TENANT: Final = "acme"
JOB_ID: Final = "ftjob-1"
HOLD_TOKENS: Final = 1_900_000  # a hold of ten hours


class Joined:
    """Node `a` of one slot, one job; time moves only when told."""

    def __init__(self, at: int, hard_gpu_ms: int = 10**12) -> None:
        self.job, self.pool = Decider(JOBS, "", at), Decider(POOLS, POOL, at)
        self.events: list[Any] = []
        self.rows: dict[Any, Mapping[str, Any]] = {}
        self._offset = 0
        self.send("job", TENANT, limits(hard_gpu_ms))
        self.to_pool(node("a", "a-1", 1))
        self.send("job", TENANT, submit(JOB_ID, HOLD_TOKENS))

    def wait(self, ms: int) -> None:
        """Let broker time run."""
        self.job.at += ms
        self.pool.at += ms

    def send(self, stream: str, key: str, body: Message) -> None:
        """Decide a command and all that follows from it."""
        decider = self.job if stream == "job" else self.pool
        events = decider.when(body, key)
        self._offset += 1
        header = header_of(stream, key, decider.at, self._offset)
        self.events += events
        for event in events:
            if stream == "pool":
                self._enter(header, event)
            for reaction in (react_job if stream == "job" else react_pool)(header, event):
                match reaction.body:
                    case PinDataset():
                        ready = RecordDataset(job_id=reaction.body.job_id, prepared=PREPARED)
                        self.send("job", key, ready)
                    case PinBase():
                        pinned = RecordBase(job_id=reaction.body.job_id, base=BASE)
                        self.send("job", key, pinned)
                    case _ if reaction.stream in {"job", "pool"}:
                        self.send(reaction.stream, reaction.key, reaction.body)
                    case _:
                        pass

    def _enter(self, header: Header, event: Any) -> None:
        for row in project_ledger(header, event):
            assert isinstance(row, Upsert)
            key = tuple(row.key.items())
            assert key not in self.rows, f"two rows of the ledger have the key {key}"
            self.rows[key] = {**row.key, **row.values}

    def to_job(self, body: Message) -> None:
        self.send("job", TENANT, body)

    def to_pool(self, body: Message) -> None:
        self.send("pool", POOL, body)

    @property
    def lease(self) -> Lease:
        """The open lease."""
        (lease,) = open_leases(self.pool.state[POOL])
        return lease

    @property
    def _token(self) -> Token:
        return self.lease.ref.token

    def start(self, loaded: str | None = None, skipped: tuple[SkippedCheckpoint, ...] = ()) -> None:
        start = AttemptStart(loaded=loaded, loaded_step=0, skipped=skipped, total_steps=40)
        self.to_pool(ReportStarted(token=self._token, incarnation="a-1", start=start))

    def beat(self, elapsed_ms: int | None = None, *, silent: bool = False) -> None:
        """What the watcher says of node `a`: its lease has run for so long."""
        listed = (
            ()
            if elapsed_ms is None
            else (LeaseSeen(lease=self._token.lease, elapsed_ms=elapsed_ms),)
        )
        seen = NodeSeen(
            node_id="a", incarnation="a-1", last_seen=self.pool.at, silent=silent, leases=listed
        )
        self.to_pool(ObserveNodes(seen=(seen,)))

    def save(self, step: int, captured_ms: int) -> None:
        saved = checkpoint(step, self.lease.ref.attempt, captured_ms)
        self.to_pool(ReportCheckpoint(token=self._token, incarnation="a-1", checkpoint=saved))

    def exit(
        self, outcome: AttemptOutcome, elapsed_ms: int, cause: FailureCause | None = None
    ) -> None:
        """The process ends, and its slot is free."""
        token, role = self._token, self.lease.ref.role
        result = TRAINED if role == "train" else SCORED
        self.to_pool(
            ReportExit(
                token=token,
                incarnation="a-1",
                outcome=outcome,
                elapsed_ms=elapsed_ms,
                cause=cause,
                result=result if outcome == "succeeded" else None,
            )
        )
        self.to_pool(ConfirmFreed(token=token, node_id="a", incarnation="a-1"))

    @property
    def billed(self) -> dict[int, int]:
        """Billed use by UTC hour, credits taken off."""
        sums = Counter[int]()
        for row in self.rows.values():
            sums[row["hour_utc"]] += row["gpu_ms"]
        return {hour: gpu_ms for hour, gpu_ms in sums.items() if gpu_ms}

    @property
    def credits(self) -> list[tuple[str, int, int]]:
        """Cause, hour and amount of every credit, in the order of the log."""
        lines = [row for row in self.rows.values() if row["kind"] == "credit"]
        return [(row["cause"], row["hour_utc"], -row["gpu_ms"]) for row in lines]

    @property
    def quota(self) -> dict[str, int]:
        """Quota used by month."""
        return dict(self.job.state[TENANT].used_gpu_ms)

    @property
    def end(self) -> JobEnded:
        """The end of the job."""
        ended = of(tuple(self.events), JobEnded)
        assert isinstance(ended, JobEnded)
        return ended
