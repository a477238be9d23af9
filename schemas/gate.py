"""What the gate of a tenant allows, and what people decide beside it. Commands of `model`."""

from typing import Literal, TypeAlias

from schemas.envelope import Message, Part
from schemas.sealed import Sealed

GateStage: TypeAlias = Literal["capability", "production", "holdout"]
EVERY_BASE = "*"  # the policy for base models without one of their own


class GatePolicy(Part, omit_defaults=True):
    """What the gate allows.

    blocking: the comparisons that block a result: with the base model on general questions, with
      the version in production on the same, and on the tenant's own validation rows. The others are
      made and told as well.
    alpha_ppm: how often a result that lost nothing may be blocked, in millionths.
    drop_max_ppm: loss of accuracy that is allowed, None: the gate's own. A job's own goes before.
    gain_min_ppm: relative gain that is wanted on the validation rows.
    """

    blocking: tuple[GateStage, ...] = ("capability", "production")
    alpha_ppm: int = 50_000
    drop_max_ppm: int | None = None
    gain_min_ppm: int = 50_000


class QuarantineDecision(Part):
    """What a person decides beside the gate.

    model_id: the version.
    quarantined: whether it is in quarantine.
    cause: why.
    by: who says so.
    """

    model_id: str
    quarantined: bool
    cause: Sealed
    by: Sealed


# --- commands
class SetGatePolicy(Message):
    """The gate shall judge new results of a base model so.

    base_id: the base model, or EVERY_BASE.
    policy: replaces the one before, None: there shall be none.
    """

    base_id: str
    policy: GatePolicy | None


class SetQuarantine(Message):
    """A person overrides the gate, or quarantines a version that it let pass.

    decision: what shall hold.
    """

    decision: QuarantineDecision


# --- events
class GatePolicySet(Message):
    """The gate judges new results of a base model so; fields as in `SetGatePolicy`."""

    base_id: str
    policy: GatePolicy | None


class QuarantineSet(Message):
    """A person has put a version into quarantine, or taken it out.

    decision: what holds.
    """

    decision: QuarantineDecision
