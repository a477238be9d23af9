"""The interface of a scenario, and the result of a run."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

NOTHING_BROKEN: Final[AbstractContextManager[Any]] = nullcontext()


@dataclass
class Verdict:
    """violations: "invariant: what was seen", nothing where all holds; voided: journal records
    that are not a claim and do not count; faults: what really happened, by kind; counts: other
    sums worth reporting; trace: lines of a timeline, when one was asked for; kinds: of commands
    and events, how often they were met.
    """

    violations: list[str] = field(default_factory=list)
    voided: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)
    kinds: dict[str, int] = field(default_factory=dict)

    @property
    def violated(self) -> frozenset[str]:
        """Names of the invariants that do not hold."""
        return frozenset(violation.split(":")[0] for violation in self.violations)


class Scenario(Protocol):
    """A simulated system under faults. Instances are picklable, to be sent to other processes.

    A plan is a frozen `msgspec.Struct` with a field `seed`. It alone decides the run, to the
    byte, regardless of the hash seed. Everything in it that may go wrong is a number (0: never), a
    flag or a tuple of steps, so that a failing plan can be made smaller without knowing it.
    """

    @property
    def name(self) -> str: ...

    def plan(self, seed: int) -> Any:
        """Draw the plan of a run from its seed."""

    def play(
        self,
        plan: Any,
        trace: bool = False,
        broken: AbstractContextManager[Any] = NOTHING_BROKEN,
    ) -> Verdict:
        """Run the plan and check the invariants. `broken` is entered for the run, not the check."""
