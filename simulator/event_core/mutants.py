"""The event core with one rule broken at a time. Each must be caught by the invariants."""

import builtins
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any, Final

from msgspec import structs

from simulator.engine import faulty_port as port
from simulator.engine import stores
from simulator.engine.faults import Faults, FaultStep
from simulator.event_core import broken_rules as broken
from simulator.event_core import run
from simulator.event_core.run import ARCHIVED, EMPTIED, RECREATED, TAIL_LOST, UPGRADE, EventCorePlan
from tunery.runtime.hosts import effects, projector, reactor
from tunery.runtime.hosts import owner as partition
from tunery.runtime.journal import acceptance, codec, decision, reader, snapshots
from tunery.runtime.tools import archiving


@dataclass(frozen=True)
class Mutant:
    """`owner.attribute` is replaced by `broken`. `invariant`: what a run with it violates; `seed`:
    one that shows it in a short run. `faults`: instead of those that the seed draws.
    """

    name: str
    owner: Any
    attribute: str
    broken: Any
    invariant: str
    seed: int = 1
    faults: Faults | None = None

    def plan(self, seed: int) -> EventCorePlan:
        """Return the plan of a seed, without standbys: their folds show no broken rule."""
        drawn = run.plan(seed)
        faults = drawn.faults if self.faults is None else self.faults
        return structs.replace(drawn, faults=faults, standby=False)

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Break the rule inside the block.

        Raises AttributeError when nothing has the attribute: a rule that was renamed would
        otherwise stay whole, and the mutant would show nothing.
        """
        if not self._is_known():
            raise AttributeError(f"{self.name}: {self.owner.__name__} has no {self.attribute}")
        missing = object()
        before = self.owner.__dict__.get(self.attribute, missing)
        setattr(self.owner, self.attribute, self.broken)
        try:
            yield
        finally:
            if before is missing:
                delattr(self.owner, self.attribute)
            else:
                setattr(self.owner, self.attribute, before)

    def _is_known(self) -> bool:
        """True if the owner has the attribute.

        A module also has the builtins, which it may shadow; a class has the attributes that its
        `__init__` sets.
        """
        if hasattr(self.owner, self.attribute):
            return True
        if isinstance(self.owner, ModuleType):
            return hasattr(builtins, self.attribute)
        initialiser = vars(self.owner).get("__init__")
        return (
            isinstance(initialiser, FunctionType)
            and self.attribute in initialiser.__code__.co_names
        )


def _once(*kinds: str) -> Faults:
    """Nothing but these, one after the other."""
    return Faults(steps=tuple(FaultStep(9_000 + 2_000 * n, kind) for n, kind in enumerate(kinds)))


#: the lost records include claims, and other owners claim again at once
_LOST_CLAIMS: Final = Faults(
    steps=(
        FaultStep(5_200, "rebalance"),
        FaultStep(6_030, TAIL_LOST),
        FaultStep(6_050, "rebalance"),
    )
)
#: an upgrade while all processes believe again and again to own all
_OVERLAPS: Final = Faults(
    slow=50,
    steps=(
        FaultStep(2_000, UPGRADE),
        *(FaultStep(2_500 + 700 * n, "overlap") for n in range(20)),
    ),
)
_RULE = acceptance, "_entry"
_OWNER = partition.PartitionOwner
_SEATS = run, "SEATS_AGGREGATE"
MUTANTS: Final[Sequence[Mutant]] = (
    Mutant("epoch check off", *_RULE, broken.epoch_off, "agreement"),
    Mutant("opened check off", *_RULE, broken.opened_off, "agreement", 29, faults=_LOST_CLAIMS),
    Mutant("cause check and hash chain off", *_RULE, broken.cause_and_chain_off, "agreement"),
    Mutant("hash chain off", *_RULE, broken.chain_off, "agreement", 155, faults=_LOST_CLAIMS),
    Mutant("hash chain tested first", *_RULE, broken.chain_first, "false stop", 4),
    Mutant("cause check off", *_RULE, broken.cause_off, "false stop", 43),
    Mutant(
        "hash chain tested before the cause", *_RULE, broken.chain_before_cause, "false stop", 14
    ),
    Mutant(
        "broken chain voided", *_RULE, broken.chain_voided, "agreement", 43, faults=_once(TAIL_LOST)
    ),
    Mutant(
        "operator's base ignored",
        acceptance,
        "_claimed",
        broken.base_ignored,
        "progress",
        2,
        faults=_once(RECREATED),
    ),
    Mutant("no read-back", _OWNER, "_settle", broken.no_read_back, "read-back"),
    Mutant("blind retry of an unknown append", _OWNER, "_settle", broken.blind_retry, "read-back"),
    Mutant(
        "later claims overlooked",
        reader.JournalReader,
        "claims",
        broken.later_claims_overlooked,
        "agreement",
        21,
        faults=_OVERLAPS,
    ),
    Mutant(
        "last decided command not compared",
        _OWNER,
        "_check_last",
        broken.last_not_compared,
        "progress",
        134,
        faults=_once(RECREATED),
    ),
    Mutant("last decided command trimmed", port.FaultyPort, "trim", broken.trim_too_far, "trim"),
    Mutant("commands trimmed by age", _OWNER, "_trim_before", broken.trim_by_age, "trim"),
    Mutant(
        "journals trimmed without an archive",
        archiving,
        "archive",
        broken.delete_unarchived,
        "false stop",
        faults=_once(ARCHIVED),
    ),
    Mutant("at not clamped", decision, "max", broken.not_clamped, "time", 2),
    Mutant("decision reads the clock", *_SEATS, broken.CLOCK_READ, "fold"),
    Mutant(
        "clients' repeats decided", decision, "recognise", broken.without("clients"), "dedupe", 2
    ),
    Mutant(
        "reactions' repeats decided", decision, "recognise", broken.without("reactions"), "dedupe"
    ),
    Mutant("effects' repeats decided", *_SEATS, broken.RECORDED_AGAIN, "effect", 9),
    Mutant(
        "reaction skipped in doubt",
        reactor.Reactor,
        "_send_all",
        broken.send_once,
        "reactions",
        14,
    ),
    Mutant(
        "reactions overtake one in doubt",
        reactor.Reactor,
        "_send_all",
        broken.send_each,
        "reactions",
    ),
    Mutant(
        "position saved before reactions are sent",
        reactor.Reactor,
        "take",
        broken.send_later,
        "reactions",
        9,
    ),
    Mutant(
        "snapshot without what was seen",
        snapshots.Snapshots,
        "_open",
        broken.forgetful,
        "dedupe",
        5,
    ),
    Mutant(
        "snapshot without acceptance state",
        snapshots.Snapshots,
        "_open",
        broken.position_alone,
        "false stop",
        8,
    ),
    Mutant(
        "projector without a fence", stores.Database, "commit", broken.commit_unfenced, "rows", 203
    ),
    Mutant(
        "position saved before the rows",
        stores.FaultyStore,
        "commit",
        broken.position_before_rows,
        "rows",
        13,
    ),
    Mutant(
        "effects before the rows are rebuilt",
        stores.Database,
        "lease_rows",
        broken.lease_at_once,
        "repeated",
        faults=_once(EMPTIED),
    ),
    Mutant(
        "a lowered flag stays down",
        projector.Projector,
        "_raise_flags",
        broken.flags_stay_down,
        "progress",
        27,
        faults=Faults(
            store_unanswered=40,
            steps=tuple(FaultStep(5_000 + 3_000 * n, "crash") for n in range(5)),
        ),
    ),
    Mutant(
        "row gone when its outcome is sent",
        stores.FaultyStore,
        "release",
        broken.row_gone_when_sent,
        "effect",
        36,
    ),
    Mutant(
        "events of a later level written at once",
        decision,
        "level_of",
        broken.any_level,
        "level",
        15,
    ),
    Mutant(
        "older releases read all events", codec.Codec, "_known", broken.all_events, "false stop", 15
    ),
    Mutant(
        "the level of a partition falls",
        decision,
        "_at_level",
        broken.level_falls,
        "level",
        181,
        faults=_OVERLAPS,
    ),
    Mutant("notices alone wake effects", effects, "POLL_MS", 10**9, "hung"),
)
