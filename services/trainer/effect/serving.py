"""The serve role, which agents of this release do not have."""

from pathlib import Path

from schemas.training import AttemptStart, EvalResult
from services.trainer.effect.program import Program
from tunery.work.events import AnyWorkEvent
from tunery.work.exits import WorkError
from tunery.work.spec import ScoreSpec


class UnknownRole(Program):
    """Program of a lease in a role that this agent has none for: it never starts a process.

    Newer control planes may ask for replicas of serving pools while older agents are still up.
    """

    module = ""

    async def write_inputs(self, folder: Path) -> ScoreSpec:
        """Raises WorkError."""
        message = f"this agent has no program for the role {self.grant.role!r}"
        raise WorkError("platform", message, "Update the agents of this pool.")

    async def handle(self, event: AnyWorkEvent) -> AttemptStart | None:
        """No process says anything."""
        return None

    async def result(self) -> EvalResult:
        """Raises FileNotFoundError: no process has left anything."""
        raise FileNotFoundError("no process ran")
