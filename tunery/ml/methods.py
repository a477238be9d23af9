"""The objective of each method."""

from schemas.training import LossType, MethodName
from tunery.ml.objectives import Objective, Supervised
from tunery.ml.packed import PackedRows
from tunery.ml.preferences import Preferences
from tunery.plan.methods import ROWS_OF_METHOD
from tunery.work.exits import WorkError


def objective_of(
    method: MethodName, *, beta: float, loss_type: LossType, packing: bool, rows: PackedRows
) -> Objective:
    """What a method learns of packed rows.

    Raises `WorkError` for a method that is not built, and for rows that it does not learn from.
    """
    if method not in ROWS_OF_METHOD:
        raise WorkError(
            "user", f"method {method!r} is not built", f"Use one of {', '.join(ROWS_OF_METHOD)}."
        )
    if rows.kind != ROWS_OF_METHOD[method]:
        message = f"method {method!r} learns from {ROWS_OF_METHOD[method]}, not from {rows.kind}"
        raise WorkError("bad_data", message, "Prepare the dataset again for this method.")
    match method:
        case "dpo":
            return Preferences(beta, loss_type, packing)
        case _:
            return Supervised(packing)
