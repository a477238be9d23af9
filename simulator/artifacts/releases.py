"""People who release versions one after the other, which single requests hardly ever come to."""

from random import Random

from schemas.model import (
    Approval,
    ApprovalRule,
    ApproveVersion,
    Promote,
    RollBack,
    SetApprovalRule,
)
from simulator.artifacts.people import KEYS, TenantClient, set_quarantine
from simulator.artifacts.version_books import HELD


async def release(keeper: TenantClient, rng: Random) -> None:
    """Promote each version to one stage, and roll back now and then.

    Some approvals are of the other stage, and some former holders go into quarantine before.
    """
    models, (stage, other) = keeper.models, rng.sample(HELD, 2)
    rule = ApprovalRule(stage=stage, required=rng.choice((0, 1)))
    await keeper.ask("model", SetApprovalRule(rule=rule))
    for name, version in sorted(models.versions.items()):
        approver = next(key for key in KEYS if key != version.terms.author)
        approval = Approval(stage=rng.choice((stage, stage, other)), key_id=approver)
        await keeper.ask("model", ApproveVersion(model_id=name, approval=approval))
        series = version.terms.series
        before = models.holders.get((series, stage))
        promoted = await keeper.ask("model", Promote(model_id=name, stage=stage, expected=before))
        if promoted and before not in (None, name) and rng.random() < 0.6:
            if rng.random() < 0.6:
                await keeper.ask("model", set_quarantine(before, True))
            back = RollBack(series=series, stage=stage, expected=name)
            await keeper.ask("model", back)
