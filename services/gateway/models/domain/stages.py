"""Former holders of stages, from the changes of versions."""

from collections import defaultdict
from collections.abc import Collection, Iterable

from schemas.model import Stage
from services.gateway.views.tables.models import ModelChangeRow


def former_holder(
    changes: Iterable[ModelChangeRow], stage: Stage, possible: Collection[str]
) -> str | None:
    """Return the version to which a roll-back returns the stage; None: there is none.

    changes: of all versions of the series, the oldest first
    possible: versions that hold no stage and are neither deleted nor in quarantine
    """
    holders: dict[Stage, str | None] = {}
    former = defaultdict[Stage, list[str]](list)  # earlier holders, the oldest first
    for each in changes:
        if each.change not in ("promotion", "rollback"):
            continue
        for left in [held for held, holder in holders.items() if holder == each.model_id]:
            former[left].append(each.model_id)
            holders[left] = None
        earlier, replaced = former[each.stage], holders.get(each.stage)
        holders[each.stage] = each.model_id
        if each.change == "rollback" and each.model_id in earlier:
            # what came after it is no former holder of it
            del earlier[len(earlier) - 1 - earlier[::-1].index(each.model_id) :]
        elif replaced is not None:
            earlier.append(replaced)
    return next((model_id for model_id in reversed(former[stage]) if model_id in possible), None)
